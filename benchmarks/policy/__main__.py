"""The command line; see the package."""

import argparse

from benchmarks.machine import describe_machine
from benchmarks.policy import cartpole, collectors, mutations, serving_cost


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policy")
    parser.add_argument(
        "what", nargs="?", choices=["cartpole", "mutations", "collectors", "serving"]
    )
    parser.add_argument("--seeds", type=int)
    options = parser.parse_args()
    print(describe_machine())
    if options.what in {None, "cartpole"}:
        cartpole.report(options.seeds or 5)
    if options.what in {None, "mutations"}:
        mutations.report(options.seeds or 3)
    if options.what in {None, "collectors"}:
        collectors.report()
    if options.what in {None, "serving"}:
        serving_cost.report()


if __name__ == "__main__":
    main()
