"""The command line; see the package."""

import argparse
from pathlib import Path

from benchmarks.machine import describe_machine
from benchmarks.policy import cartpole, collectors, mutations, planted, serving_cost, variants

WHAT = ("cartpole", "mutations", "variants", "planted", "collectors", "serving")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policy")
    parser.add_argument("what", nargs="?", choices=WHAT)
    parser.add_argument("--seeds", type=int, help="0: only the table of --out")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument(
        "--beside", action="store_true", help="Stable-Baselines3 on CartPole-v1 too"
    )
    parser.add_argument(
        "--learners", nargs="+", choices=sorted({*variants.LEARNERS, *planted.LEARNERS})
    )
    parser.add_argument("--out", type=Path, help="CSV file to which rows are appended")
    parser.add_argument("--gepa", type=Path, help="CSV file of GEPA's runs, for `planted`")
    parser.add_argument("--picture", type=Path, help="PNG or SVG file that `planted` draws")
    options = parser.parse_args()
    print(describe_machine(), flush=True)
    if options.what in {None, "cartpole"}:
        cartpole.report(
            range(options.first, options.first + (options.seeds or 5)), beside=options.beside
        )
    if options.what in {None, "mutations"}:
        mutations.report(options.seeds or 5)
    if options.what in {None, "variants"}:
        # By default what needs no library of others.
        learners = options.learners or [n for n in variants.LEARNERS if n != "MaskablePPO"]
        path = options.out or Path("build/policy-variants.csv")
        seeds = range(
            options.first, options.first + (options.seeds if options.seeds is not None else 10)
        )
        variants.run(seeds, [*variants.VARIANTS], learners, path)
        print(variants.table(path))
    if options.what in {None, "planted"}:
        learners = options.learners or [n for n in planted.LEARNERS if n != "MaskablePPO"]
        path = options.out or Path("build/policy-planted.csv")
        planted.run(
            range(options.first, options.first + (20 if options.seeds is None else options.seeds)),
            learners,
            path,
        )
        found = planted.read(path, options.gepa)
        print(planted.table(found))
        if options.picture is not None:
            planted.draw(found, options.picture)
    if options.what in {None, "collectors"}:
        collectors.report()
    if options.what in {None, "serving"}:
        serving_cost.report()


if __name__ == "__main__":
    main()
