"""The command line; see the package."""

from pathlib import Path

from benchmarks.machine import describe_machine, options
from benchmarks.policy import variants

if __name__ == "__main__":
    args = options(__doc__, seeds=10, out="build/policy-variants.csv")
    print(describe_machine(), flush=True)
    path = Path(args.out)
    variants.run(range(args.seeds), [*variants.VARIANTS], variants.LEARNERS, path)
    print(variants.table(path))
