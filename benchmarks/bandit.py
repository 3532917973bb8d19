"""Runtime bandit: a change of the best arm, and nightly priors that were right or wrong.

    python -m benchmarks.bandit --only flip warm

Simulated rewards of 0 and 1; means over seeds with standard errors.
"""

import numpy as np

from benchmarks.machine import options
from benchmarks.tables import header, row, with_error
from convergence_core.bandit.arms import BetaArms
from convergence_core.bandit.drift import DriftWatch
from convergence_core.bandit.priors import TRUST, WarmArms, nightly_prior, sharpened
from convergence_core.bandit.propensities import of_beta

SEEDS = 20
FLOOR = 0.02


def flipped(seed: int, before: tuple[float, ...], after: tuple[float, ...]) -> tuple[float, int]:
    """Return the regret after request 2,000 of 6,000, and the run's number of alarms."""
    rng, n_arms = np.random.default_rng(seed), len(before)
    alpha, beta, watch = np.ones(n_arms), np.ones(n_arms), DriftWatch().widened(n_arms)
    regret, alarms, spread = 0.0, 0, 0
    for t in range(6_000):
        means = after if t >= 2_000 else before
        even = 0.2 if spread else FLOOR
        shares = (1.0 - even) * of_beta(alpha, beta) + even / n_arms
        arm = int(rng.choice(n_arms, p=shares / shares.sum()))
        spread = max(0, spread - 1)
        reward = float(rng.random() < means[arm])
        if t >= 2_000:
            regret += max(means) - means[arm]
        alpha[arm], beta[arm] = alpha[arm] + reward, beta[arm] + 1.0 - reward
        watch, alarm = watch.tell(arm, reward)
        if alarm is not None:  # the arm keeps the rewards since the change
            total = alarm.after * alarm.n_after
            alpha[arm], beta[arm] = 1.0 + total, 1.0 + alarm.n_after - total
            alarms, spread = alarms + 1, 100
    return regret, alarms


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
    """Return the regret of 1,000 requests, after a night that measured five arms ``n_measured`` times each."""
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
    night = np.array([[p.alpha for p in priors], [p.beta for p in priors]])
    trust, regret, counts = 0.0 if nights == "cold" else TRUST, 0.0, np.zeros((2, 5))
    for _ in range(1_000):
        informed, vague = (
            BetaArms(prior_alpha=a, prior_beta=b, alpha=a + counts[0], beta=b + counts[1])
            for a, b in (night, np.ones((2, 5)))
        )
        arms = WarmArms(informed=informed, vague=vague, trust_before=trust)
        drawn = sharpened(informed) if rng.random() < arms.trust else vague
        arm = int(rng.beta(drawn.alpha, drawn.beta).argmax())
        regret += means.max() - means[arm]
        counts[int(rng.random() >= means[arm]), arm] += 1.0
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
