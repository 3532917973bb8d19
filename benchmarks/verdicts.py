"""Power and error of the promotion gate at a run's end, and of its verbal evidence.

    python -m benchmarks.verdicts

Power: one check of binary rewards (n = 100) and normal ones clipped to [0, 1] (n = 30), true difference .1. Error:
equal pairs in five environments, with one check, with 200 checks on a growing number of cases, and with 30 nights of
other candidates on the same cases. *Likely*: the share of equal and of better pairs called at least likely better.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.special import stdtr

from benchmarks.machine import options
from benchmarks.tables import header, row
from convergence_core.gate.betting import Floats
from convergence_core.gate.intervals import one_look_p
from convergence_core.gate.paired import PairedGate, level_of_look
from convergence_core.result.verdict import LEAST_LIKELY, LIKELY, LIKELY_P

Draw = Callable[[np.random.Generator, int, float], Floats]
ALPHA = PairedGate().alpha


def binary(rng: np.random.Generator, n: int, gain: float, *, mean: float = 0.6) -> Floats:
    """Return differences of binary rewards, (n,)."""
    ours, theirs = rng.random(n) < mean + gain, rng.random(n) < mean
    return ours.astype(np.float64) - theirs


def normal(rng: np.random.Generator, n: int, gain: float, *, mean: float = 0.5) -> Floats:
    """Return differences of normal rewards clipped to [0, 1], (n,)."""
    levels = np.array([[mean + gain], [mean]])
    ours, theirs = np.clip(levels + 0.16 * rng.standard_normal((2, n)), 0.0, 1.0)
    return np.asarray(ours - theirs, dtype=np.float64)


ENVIRONMENTS: dict[str, Draw] = {
    "binary .5": partial(binary, mean=0.5),
    "binary .7": partial(binary, mean=0.7),
    "binary .95": partial(binary, mean=0.95),
    "normal .5": normal,
    "normal .9": partial(normal, mean=0.9),
}


def promotes(differences: Floats, n_earlier: int = 0) -> bool:
    """Return whether one check promotes, after earlier checks on the same cases."""
    return one_look_p(differences) <= level_of_look(ALPHA, [n_earlier])


def looks(rng: np.random.Generator, draw: Draw, n_looks: int = 200) -> bool:
    """Return whether any of many checks promotes, each with one more case; k counts checks per case."""
    differences, n_earlier = draw(rng, 30 + n_looks, 0.0), np.zeros(30 + n_looks)
    for n in range(30, 30 + n_looks):
        level = level_of_look(ALPHA, n_earlier[:n])
        if one_look_p(differences[:n]) <= level:
            return True
        n_earlier[:n] += 1
    return False


def nights(rng: np.random.Generator, draw: Draw) -> bool:
    """Return whether any of 30 candidates, equal to the champion, is promoted on the same 60 cases."""
    return any(promotes(draw(rng, 60, 0.0), night) for night in range(30))


def is_likely(differences: Floats) -> bool:
    """Return whether ``convergence_core.result.verdict`` calls it at least likely better."""
    n, deviation = differences.size, float(differences.std(ddof=1))
    if n < LEAST_LIKELY or deviation == 0.0:
        return False
    probability = stdtr(n - 1, differences.mean() / deviation * np.sqrt(n))
    return bool(probability >= LIKELY) and one_look_p(differences) <= LIKELY_P


def share(n_runs: int, test: Callable[..., bool], draw: Draw, *size: float) -> str:
    """Return how often a test holds for drawn differences, or for their source, in percent."""
    rng = np.random.default_rng(11)
    n = sum(
        test(draw(rng, int(size[0]), size[1])) if size else test(rng, draw) for _ in range(n_runs)
    )
    return f"{n / n_runs:.1%}"


def main() -> None:
    """Print power, errors and the share of pairs called likely better."""
    k = options(__doc__, runs=400).runs
    print("## Power of one look, true difference .1\n")
    print(header("rewards", "gate", "at least likely"))
    powers: tuple[tuple[str, int, Draw], ...] = (
        ("binary .6", 100, binary),
        ("binary .7", 100, partial(binary, mean=0.7)),
        ("normal .5", 30, normal),
    )
    for name, n, draw in powers:
        cells = [share(k, test, draw, n, 0.1) for test in (promotes, is_likely)]
        print(row(f"{name}, n = {n}", *cells), flush=True)
    print("\n## Equal pairs promoted, and called at least likely better\n")
    print(header("environment", "one look", "200 looks", "30 nights", "likely, n = 20", "n = 100"))
    for name, draw in ENVIRONMENTS.items():
        cells = [share(k, promotes, draw, 60, 0.0)]
        cells += [share(max(1, k // 4), test, draw) for test in (looks, nights)]
        cells += [share(k, is_likely, draw, n, 0.0) for n in (20, 100)]
        print(row(name, *cells), flush=True)


if __name__ == "__main__":
    main()
