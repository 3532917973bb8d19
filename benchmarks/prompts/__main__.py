"""Command line of the benchmark of written prompts; see the package."""

import os
from pathlib import Path

from benchmarks.machine import describe_machine, options
from benchmarks.prompts.hill_climb import climb
from benchmarks.prompts.records import read_rows, table
from benchmarks.prompts.world import N_ASKED, gap_closed, quality
from benchmarks.tables import append


def best_prompt(name: str, seed: int, n_calls: int) -> str:
    """Return the prompt that an optimizer hands over: ours, climb, noise, lies or gepa."""
    if name == "climb":
        return climb(seed, n_calls)
    if name == "gepa":
        from benchmarks.prompts.rivals import gepa  # noqa: PLC0415 - of its environment

        return gepa(seed, n_calls)
    from benchmarks.prompts.ours import optimize  # noqa: PLC0415 - rivals' environments lack it

    return optimize(seed, n_calls, "honest" if name == "ours" else name)  # type: ignore[arg-type]  # a temper


def main() -> None:
    """Run optimizers, and print the table of what they reached."""
    args = options(
        __doc__, opts=("ours", "climb"), seeds=30, calls=N_ASKED, out="build/prompts.csv"
    )
    path = Path(args.out)
    print(describe_machine(), flush=True)
    for seed in range(args.seeds):
        for name in args.opts:
            text = best_prompt(name, seed, args.calls)
            row: dict[str, object] = {"optimizer": name, "seed": seed, "n_calls": args.calls}
            row |= {"gap_closed": gap_closed(text), "quality": quality(text), "prompt": text}
            append(path, [row])
            print(f"{name} {seed}: {gap_closed(text):.3f}", flush=True)
    print(table(read_rows(path), "ours"))


if __name__ == "__main__":
    main()
    os._exit(0)  # threads of a library that is left open would wait
