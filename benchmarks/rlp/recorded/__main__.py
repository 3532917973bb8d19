"""The command line; see the package."""

from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.machine import describe_machine, options
from benchmarks.rlp.recorded.runs import REPLIES, TASKS, WAYS, MissingReplyError, Way, play
from benchmarks.tables import header, row, with_error


def _regrets(key: tuple[str, Way, int]) -> tuple[float, float, float] | MissingReplyError:
    try:
        return play(*key)
    except MissingReplyError as missing:
        return missing


if __name__ == "__main__":
    args = options("What recorded replies bring.", seeds=3, processes=2, ask="")
    keys = [*product(TASKS, WAYS, range(args.seeds))]
    with ProcessPoolExecutor(args.processes) as pool:
        outcomes = [*pool.map(_regrets, keys)]
    missing = dict(e.args for e in outcomes if isinstance(e, MissingReplyError))
    for name, prompt in missing.items() if args.ask else ():
        (Path(args.ask) / f"{name}.txt").write_text(prompt, encoding="utf-8")
    if missing:
        raise SystemExit(
            f"replies are missing: {', '.join(missing)}. Get them with `--ask FOLDER`."
        )
    regrets = np.array(outcomes).reshape(len(TASKS), len(WAYS), args.seeds, 3).mean(axis=2)
    print(f"{describe_machine()}, {len(REPLIES)} replies, {args.seeds} seeds")
    for when, name in enumerate(
        ("regret after the first generation", "regret at the end", "gain")
    ):
        print(f"\n{header(name, *WAYS, 'recorded - plain', 'recorded - useless')}")
        of = regrets[..., when]
        gains = np.stack([of[:, 1] - of[:, 0], of[:, 1] - of[:, 2]])
        for task, cells, gain in zip(TASKS, of, gains.T, strict=True):
            print(row(task, *(f"{x:.3f}" for x in cells), *(f"{x:+.3f}" for x in gain)))
        means = [f"{x:.3f}" for x in of.mean(axis=0)]
        print(row("mean ± standard error", *means, *(with_error(g, "+.3f") for g in gains)))
