"""The command line; see the package."""

from pathlib import Path

from benchmarks.machine import describe_machine, options
from benchmarks.policy import variants

if __name__ == "__main__":
    given = options(__doc__, seeds=10, out="build/policy-variants.csv")
    print(describe_machine(), flush=True)
    path = Path(given.out)
    variants.run(range(given.seeds), [*variants.VARIANTS], variants.LEARNERS, path)
    print(variants.table(path))
