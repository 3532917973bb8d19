"""The command line; see the package."""

from benchmarks.machine import describe_machine
from benchmarks.sao.filtering import report

if __name__ == "__main__":
    print(describe_machine())
    report()
