"""Tables of regrets and paired changes."""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import get_args

import numpy as np
from scipy import stats

from benchmarks.rlp.landscapes import LANDSCAPES
from benchmarks.rlp.runs import play
from benchmarks.rlp.simulated import Kind, Thinkers, Way
from convergence_core.rlp.gain import LEVEL, shows_help
from convergence_core.rlp.learner import RlpState


def one(task: tuple[str, Way, Thinkers, int]) -> tuple[float, float]:
    """Return the regrets of one run; for worker processes."""
    name, way, thinker, seed = task
    if name == "quickstart":
        from benchmarks.rlp.quickstart import play_quickstart  # noqa: PLC0415 - for this part alone

        return play_quickstart(way, thinker, seed)
    assert thinker != "offline"
    found = play(LANDSCAPES[name], way, thinker, seed)
    return found.regret, found.final_regret


def measure(
    name: str,
    *,
    n_seeds: int,
    n_processes: int,
    thinkers: Sequence[Thinkers] | None = None,
    others: Sequence[Way] = ("trust", "rlp"),
) -> None:
    """Print the table of one landscape.

    Args:
        name: of the landscape.
        n_seeds: from 0.
        n_processes: worker processes.
        thinkers: ``None``: all that the landscape knows.
        others: what is compared with plain search.
    """
    known: Sequence[Thinkers] = get_args(Kind if name != "quickstart" else Thinkers)
    ways: list[tuple[Way, Thinkers]] = [("plain", "good")]
    ways += [(way, thinker) for thinker in thinkers or known for way in others]
    tasks = [(name, way, thinker, seed) for seed in range(n_seeds) for way, thinker in ways]
    if name == "quickstart":
        from benchmarks.rlp.quickstart import known as ask_ahead  # noqa: PLC0415 - for this part alone

        ask_ahead()  # before the workers are forked
    with ProcessPoolExecutor(n_processes, mp_context=get_context("fork")) as pool:
        found = list(pool.map(one, tasks, chunksize=1))
    show(name, {key: np.array(found[i :: len(ways)]) for i, key in enumerate(ways)})


def credit(name: str, *, n_seeds: int, n_processes: int, n_generations: int) -> None:
    """Print how often it is said of each thinker that its thoughts helped.

    Args:
        name: of the landscape.
        n_seeds: from 0.
        n_processes: worker processes.
        n_generations: of each run.
    """
    kinds: Sequence[Kind] = ("good", "same")
    tasks = [(name, kind, seed, n_generations) for kind in kinds for seed in range(n_seeds)]
    with ProcessPoolExecutor(n_processes, mp_context=get_context("fork")) as pool:
        states = list(pool.map(learned, tasks, chunksize=1))
    print(f"\n{name}: {n_seeds} runs of {n_generations} generations\n")
    print(
        "| thinker | gain, nats | lottery | passes against the baseline | against its average | said to help |"
    )
    print("|---|---|---|---|---|---|")
    for i, kind in enumerate(kinds):
        own = states[i * n_seeds : (i + 1) * n_seeds]
        numbers = [
            sum(one.evidence.top_e_value >= 1.0 / LEVEL for one in own),
            sum(one.resolution.top_e_value >= 1.0 / LEVEL for one in own),
            sum(helps(one) for one in own),
        ]
        gains = np.array([np.mean(one.gains) for one in own])
        mean, half = _interval(gains)
        weight = np.mean([1.0 - one.weights.values[0] for one in own])
        cells = " | ".join(f"{n}/{n_seeds}" for n in numbers)
        print(f"| {kind} | {mean:+.2f} ± {half:.2f} | {100 * weight:.0f} % | {cells} |")


def helps(state: RlpState) -> bool:
    """Whether it may be said that thoughts help."""
    mean = float(np.mean(state.gains)) if state.gains else None
    return shows_help(mean, state.evidence.top_e_value, state.resolution.top_e_value)


def learned(task: tuple[str, Kind, int, int]) -> RlpState:
    """Return what one run learned of its thoughts; for worker processes."""
    name, kind, seed, n_generations = task
    return play(LANDSCAPES[name], "rlp", kind, seed, n_generations=n_generations).learned


def show(name: str, rows: Mapping[tuple[Way, Thinkers], np.ndarray]) -> None:
    """Print regrets of ways and thinkers, each (n_seeds, 2), with changes against the plain way."""
    plain = rows["plain", "good"]
    print(f"\n{name}: {len(plain)} seeds\n")
    print("| thinker | way | regret per cell | change, paired | final regret | change, paired |")
    print("|---|---|---|---|---|---|")
    for (way, thinker), values in rows.items():
        cells: list[str] = ["none" if way == "plain" else thinker, way]
        for column in (0, 1):
            cells.append(f"{values[:, column].mean():.4f}")
            # The winner may be better than what the regret is against: no percentages of that.
            told = difference if name == "quickstart" and column else change
            cells.append("" if way == "plain" else told(values[:, column], plain[:, column]))
        print("| " + " | ".join(cells) + " |")


def change(values: np.ndarray, plain: np.ndarray) -> str:
    """Return the mean change in percent of the plain mean, with its interval."""
    mean, half = _interval((values - plain) / plain.mean())
    return f"{100 * mean:+.1f} % [{100 * (mean - half):+.1f}, {100 * (mean + half):+.1f}]"


def difference(values: np.ndarray, plain: np.ndarray) -> str:
    """Return the mean change, with its interval."""
    mean, half = _interval(values - plain)
    return f"{mean:+.4f} [{mean - half:+.4f}, {mean + half:+.4f}]"


def _interval(gaps: np.ndarray) -> tuple[float, float]:
    """Return the mean, and half of its 95 % interval."""
    quantile = float(stats.t.ppf(0.975, len(gaps) - 1))
    return float(gaps.mean()), quantile * float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
