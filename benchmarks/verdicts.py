"""Forecasts of how many held-out cases a verdict takes, against what it took.

    python -m benchmarks.verdicts

Differences of rewards (pass or fail, and normal ones) are drawn until the gate has a verdict; after the first 20 to 100
it is forecast, where it is undecided and likely better. The peer is a forecast from the true effect.
"""

import numpy as np

from convergence_core.gate import PairedGate
from convergence_core.gate.betting import LOG_START, Side, log_factors, log_mean_wealth
from convergence_core.result.verdict import LIKELY

N_RUNS, MOST = 200, 20_000
EFFECTS = (0.03, 0.06, 0.1, 0.15, 0.2)
SEEN = (20, 40, 60, 100)


def drawn(rng: np.random.Generator, *, is_binary: bool, effect: float) -> np.ndarray:
    """Return differences in [-1, 1], (MOST,)."""
    if not is_binary:
        return np.clip(effect + 0.25 * rng.standard_normal(MOST), -1.0, 1.0)
    up, down = (0.3 + effect) / 2, (0.3 - effect) / 2
    u = rng.random(MOST)
    return np.where(u < up, 1.0, np.where(u < up + down, -1.0, 0.0))


def n_to_verdict(differences: np.ndarray, threshold: float) -> int | None:
    """Return after how many pairs there is a verdict; ``None``: not among these."""
    rewards = (differences + 1.0) / 2.0
    sides: tuple[Side, ...] = ("above", "below")
    reached = [
        np.flatnonzero(
            log_mean_wealth(LOG_START + np.cumsum(log_factors(rewards, 0.5, side), axis=0))
            >= threshold
        )
        for side in sides
    ]
    first = [int(found[0]) + 1 for found in reached if found.size]
    return min(first, default=None)


def main() -> None:
    """Print how often forecasts were within a factor of two, and how often the range held."""
    gate, rng = PairedGate(), np.random.default_rng(1)
    threshold = -float(np.log(gate.alpha))
    rows: list[tuple[int, int, int, int, int, float]] = []
    while len(rows) < N_RUNS:
        effect, n_seen = float(rng.choice(EFFECTS)), int(rng.choice(SEEN))
        found = drawn(rng, is_binary=len(rows) % 2 == 0, effect=effect)
        n = n_to_verdict(found, threshold)
        if n is None or n <= n_seen:
            continue
        seen = found[:n_seen]
        if (gate.judge(seen).probability_better or 0.0) < LIKELY:
            continue
        forecast = gate.forecast(seen)
        if forecast is None:
            continue
        oracle = 2.0 * float(np.var(found)) / effect**2 * (threshold + 1.5)
        high = MOST if forecast.high is None else forecast.high
        rows.append((n, n_seen + forecast.n, n_seen + forecast.low, n_seen + high, n_seen, oracle))
    table = np.asarray(rows, dtype=np.float64)
    needed, forecasts, known = table[:, 0], table[:, 1], table[:, 5]
    holds = (table[:, 2] <= needed) & (needed <= table[:, 3])
    print(f"{N_RUNS} undecided comparisons, likely better, after {SEEN} cases")
    print(f"within a factor of two, forecast:         {within_two(forecasts, needed):.2f}")
    print(f"within a factor of two, true effect:      {within_two(known, needed):.2f}")
    print(f"forecast / needed, median:                {np.median(forecasts / needed):.2f}")
    print(f"range of 80 % holds:                      {holds.mean():.2f}")


def within_two(forecasts: np.ndarray, needed: np.ndarray) -> float:
    """Return the share of forecasts within a factor of two."""
    return float(np.mean(np.maximum(forecasts / needed, needed / forecasts) <= 2.0))


if __name__ == "__main__":
    main()
