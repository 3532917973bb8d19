"""The runtime bandit: a flip of the best arm, nights that were right and wrong.

    python -m benchmarks.bandit --only flip warm

Simulated rewards of 0 and 1; means over seeds with standard errors.
"""

from dataclasses import replace

import numpy as np

from benchmarks.machine import options
from benchmarks.tables import header, row, with_error
from convergence_core.bandit.arms import BetaArms
from convergence_core.bandit.drift import DriftWatch
from convergence_core.bandit.priors import WarmArms, nightly_prior

SEEDS = 20
FLOOR = 0.02


def flipped(seed: int, before: tuple[float, ...], after: tuple[float, ...]) -> tuple[float, int]:
    """Return the regret after request 2,000 of 6,000, and the alarms of the whole run."""
    rng, n_arms = np.random.default_rng(seed), len(before)
    arms, watch = BetaArms.begin(np.ones(n_arms), 1.0), DriftWatch().widened(n_arms)
    regret, alarms, spread = 0.0, 0, 0
    for t in range(6_000):
        means = after if t >= 2_000 else before
        even = 0.2 if spread else FLOOR
        shares = (1.0 - even) * arms.propensities() + even / n_arms
        arm = int(rng.choice(n_arms, p=shares / shares.sum()))
        spread = max(0, spread - 1)
        reward = float(rng.random() < means[arm])
        if t >= 2_000:
            regret += max(means) - means[arm]
        arms = arms.tell(arm, reward)
        watch, alarm = watch.tell(arm, reward)
        if alarm is not None:
            arms = restarted(arms, arm, alarm.after * alarm.n_after, alarm.n_after)
            alarms, spread = alarms + 1, 100
    return regret, alarms


def restarted(arms: BetaArms, arm: int, total: float, n: int) -> BetaArms:
    """Return the arms with one back at its prior and the rewards since a change: sum and number."""
    alpha, beta = arms.alpha.copy(), arms.beta.copy()
    alpha[arm] = arms.prior_alpha[arm] + total
    beta[arm] = arms.prior_beta[arm] + n - total
    return replace(arms, alpha=alpha, beta=beta)


def flip() -> None:
    """Print regret and alarms with and without a flip."""
    print("\n## Regret after request 2,000 of 6,000, with the drift watch\n")
    print(header("arms", "regret", "alarms a run"))
    for name, before, after in (
        (".8/.6 becomes .3/.6", (0.8, 0.6), (0.3, 0.6)),
        (".7/.3 are swapped", (0.7, 0.3), (0.3, 0.7)),
        (".8/.6 stay", (0.8, 0.6), (0.8, 0.6)),
    ):
        runs = [flipped(seed, before, after) for seed in range(SEEDS)]
        regrets = np.array([regret for regret, _ in runs])
        alarms = np.mean([n for _, n in runs])
        print(row(name, with_error(regrets, ".1f"), f"{alarms:.2f}"), flush=True)


def served(seed: int, nights: str, n_measured: int = 40) -> float:
    """Return the regret of 1,000 requests; the night measured each of five arms so often."""
    rng = np.random.default_rng(seed)
    means = rng.beta(6.0, 3.0, size=5)
    measured = rng.binomial(n_measured, means) / n_measured
    if nights == "wrong":
        measured = measured[rng.permutation(5)]
    inside = np.clip(measured, 0.05, 0.95)
    priors = [
        nightly_prior(float(mean), float(sd))
        for mean, sd in zip(measured, np.sqrt(inside * (1 - inside) / n_measured), strict=True)
    ]
    arms = WarmArms.begin([p.alpha for p in priors], [p.beta for p in priors])
    if nights == "cold":
        arms = WarmArms.begin(np.ones(5), np.ones(5), trust=0.0)
    regret = 0.0
    for _ in range(1_000):
        arm = int(arms.draw(rng).argmax())
        regret += means.max() - means[arm]
        arms = arms.tell(arm, float(rng.random() < means[arm]))
    return regret


def warm() -> None:
    """Print the regret with the nightly prior relative to a cold start."""
    print("\n## Regret of the first 1,000 requests, relative to a cold start\n")
    print("| measured | systems | night right | night wrong (arms permuted) |\n|---|---|---|---|")
    for n_measured in (40, 100):
        sets = [range(20 * k, 20 * k + 20) for k in range(5)]
        for seeds in (*sets, range(100)):
            mean = {
                k: np.mean([served(seed, k, n_measured) for seed in seeds])
                for k in ("cold", "right", "wrong")
            }
            right, wrong = mean["right"] / mean["cold"], mean["wrong"] / mean["cold"]
            shown = f"{seeds[0]} to {seeds[-1]}"
            print(f"| {n_measured} | {shown} | {right:.0%} | {wrong:.0%} |", flush=True)


if __name__ == "__main__":
    for part in options(__doc__, only=("flip", "warm")).only:
        {"flip": flip, "warm": warm}[part]()
