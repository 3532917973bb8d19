"""Command line of the prompt benchmark; see the package."""

import os
from pathlib import Path

import numpy as np

from benchmarks.machine import describe_machine, options
from benchmarks.prompts.hill_climb import climb
from benchmarks.prompts.records import read_rows, table
from benchmarks.prompts.world import N_ASKED, Mock, planted
from benchmarks.prompts.writer import Writer
from benchmarks.tables import append


def best_prompt(name: str, mock: Mock, seed: int, n_calls: int) -> str:
    """Return an optimizer's final prompt.

    Args:
        name: ``ours``, ``climb``, ``blind``, or ``gepa-N`` with N validation cases.
        mock: Mock model of the run.
        seed: Seed of the run.
        n_calls: Maximum answers; for ``ours``, of the search alone.
    """
    rng = np.random.default_rng([seed, 2 if name.startswith("gepa") else 1])
    writer = Writer(world=mock.world, rng=rng)
    if name in ("climb", "blind"):
        operator = {"climb": "reflect"}.get(name, name)
        return climb(mock, rng, n_calls, lambda text, shown: writer.edit(operator, [text], shown))
    if name.startswith("gepa"):
        from benchmarks.prompts.rivals import gepa, reflecting  # noqa: PLC0415 - of its environment

        return gepa(mock, seed, n_calls, int(name.partition("-")[2]), reflecting(writer))
    from benchmarks.prompts.ours import optimize  # noqa: PLC0415 - rivals' environments lack it

    return optimize(mock, seed, n_calls)


def main() -> None:
    """Run optimizers and print the table of results."""
    args = options(
        __doc__,
        opts=("ours", "climb", "blind"),
        world="shop",
        first=0,
        seeds=30,
        out="build/prompts.csv",
    )
    path = Path(args.out)
    print(describe_machine(), flush=True)
    for seed in range(args.first, args.first + args.seeds):
        for label in args.opts:
            name, _, n_calls = label.partition(":")
            world = planted(args.world, seed)
            mock = Mock(world, seed)
            text = best_prompt(name, mock, seed, int(n_calls or N_ASKED))
            row: dict[str, object] = {"world": args.world, "optimizer": label, "seed": seed}
            row |= {"n_calls": mock.n_calls, "gap_closed": world.gap_closed(text), "prompt": text}
            append(path, [row])
            print(f"{label} {seed}: {row['gap_closed']:.3f}", flush=True)
    print(table(read_rows(path, args.world), "ours"))


if __name__ == "__main__":
    main()
    os._exit(0)  # threads of an unclosed library would block the exit
