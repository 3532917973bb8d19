"""The command line; see the package."""

from benchmarks.games.cost import report_cost
from benchmarks.games.learned import report_learned
from benchmarks.games.society import report_society
from benchmarks.machine import describe_machine

if __name__ == "__main__":
    print(describe_machine())
    report_cost()
    report_learned()
    report_society()
