"""The command line; see the package."""

from benchmarks.machine import describe_machine, options
from benchmarks.rlp.landscapes import LANDSCAPES
from benchmarks.rlp.tables import measure

if __name__ == "__main__":
    args = options("What thoughts bring and cost.", seeds=10, processes=2)
    print(describe_machine())
    for name in LANDSCAPES:
        measure(name, n_seeds=args.seeds, n_processes=args.processes)
