"""The command line; see the package."""

import argparse
import time

from benchmarks.machine import describe_machine
from benchmarks.rlp.cost import cpu
from benchmarks.rlp.landscapes import LANDSCAPES
from benchmarks.rlp.tables import credit, measure


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="What thoughts bring and cost.")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--landscapes", nargs="+", default=list(LANDSCAPES))
    parser.add_argument("--thinkers", nargs="+", help="all of the landscape if absent")
    parser.add_argument("--ways", nargs="+", default=["trust", "rlp"])
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--credit", action="store_true", help="of which thinkers help is claimed")
    parser.add_argument("--generations", type=int, default=20, help="of the runs of --credit")
    arguments = parser.parse_args()
    print(describe_machine())
    if arguments.cpu:
        cpu()
        return
    for name in arguments.landscapes:
        if arguments.credit:
            credit(
                name,
                n_seeds=arguments.seeds,
                n_processes=arguments.processes,
                n_generations=arguments.generations,
            )
            continue
        started = time.perf_counter()
        measure(
            name,
            n_seeds=arguments.seeds,
            n_processes=arguments.processes,
            thinkers=arguments.thinkers,
            others=arguments.ways,
        )
        print(f"\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
