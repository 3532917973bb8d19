"""The runtime bandit: a flip of the best arm, nights that were right and wrong, decisions per second.

    python -m benchmarks.bandit [--only flip,shared,warm,speed]

Simulated rewards of 0 and 1; means over seeds with standard errors.
"""

import argparse
import time
from dataclasses import replace

import numpy as np

from convergence_core.bandit import (
    BetaArms,
    DriftWatch,
    LinearArms,
    LinearLearner,
    Policy,
    WarmArms,
    nightly_prior,
)
from convergence_core.bandit.drift import GLOBAL_ERROR_SHARE
from convergence_core.bandit.propensities import of_beta

SEEDS = 20
FLOOR = 0.02


def flipped(seed: int, before: tuple[float, ...], after: tuple[float, ...]) -> tuple[float, int]:
    """Return the regret after request 2,000 of 6,000, and the alarms of the whole run."""
    rng, n_arms = np.random.default_rng(seed), len(before)
    arms, watch = BetaArms.begin(np.ones(n_arms), 1.0), DriftWatch.begin(n_arms)
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
        watch, alarm = watch.tell(arm, reward, min(1.0, float(shares[arm])))
        if alarm is not None:
            known = {arm: (alarm.after * alarm.n_after, alarm.n_after)}
            for k, (total, n) in dict(enumerate(alarm.since)).items() or known.items():
                arms = restarted(arms, k, total, n)
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
    print("| arms | regret | alarms a run |\n|---|---|---|")
    for name, before, after in (
        (".8/.6 becomes .3/.6", (0.8, 0.6), (0.3, 0.6)),
        (".7/.3 are swapped", (0.7, 0.3), (0.3, 0.7)),
        (".8/.6 stay", (0.8, 0.6), (0.8, 0.6)),
    ):
        runs = [flipped(seed, before, after) for seed in range(SEEDS)]
        regrets = np.array([regret for regret, _ in runs])
        alarms = np.mean([n for _, n in runs])
        error = regrets.std() / np.sqrt(SEEDS)
        print(f"| {name} | {regrets.mean():.1f} ± {error:.1f} | {alarms:.2f} |", flush=True)


def shared() -> None:
    """Print when a fall that all arms share is found, with and without the watch over all."""
    print("\n## Requests from a fall of all means at 2,000 to the alarm, even traffic\n")
    print("| arms | fall | arms and whole | arms alone | by the whole |\n|---|---|---|---|---|")
    for means, fall in (
        ((0.7, 0.6), 0.2),
        ((0.6,) * 5, 0.2),
        ((0.8, 0.75, 0.7, 0.6, 0.5), 0.15),
        ((0.5,) * 10, 0.2),
    ):
        found = [found_after(means, fall, seed, is_drawn=True) for seed in range(SEEDS)]
        alone = [found_after(means, fall, seed, is_drawn=False) for seed in range(SEEDS)]
        cells = [", ".join(f"{mean:g}" for mean in means), f"{fall:g}"]
        cells += [f"{np.median([n for n, _ in runs]):,.0f}" for runs in (found, alone)]
        cells.append(f"{sum(arm is None for _, arm in found)}/{SEEDS}")
        print("| " + " | ".join(cells) + " |", flush=True)


def found_after(
    means: tuple[float, ...], fall: float, seed: int, *, is_drawn: bool
) -> tuple[float, int | None]:
    """Return requests from the fall to the alarm, and its arm; at most 6,000, and -1."""
    rng, k = np.random.default_rng(seed), len(means)
    # Without the whole the arms have all of the error.
    rate = 20_000.0 if is_drawn else 20_000.0 * (1.0 - GLOBAL_ERROR_SHARE)
    watch = DriftWatch.begin(k, rewards_per_false_alarm=rate)
    for n in range(1, 8_001):
        arm = int(rng.integers(k))
        reward = float(rng.random() < means[arm] - (fall if n > 2_000 else 0.0))
        watch, alarm = watch.tell(arm, reward, 1.0 / k if is_drawn else None)
        if alarm is not None and n <= 2_000:
            return 0.0, -1
        if alarm is not None:
            return n - 2_000.0, alarm.arm
    return 6_000.0, -1


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


def speed() -> None:
    """Print decisions with their learning per CPU-second, in memory."""
    print("\n## Choose and learn, ten arms, in memory: thousands per CPU-second\n")
    rng = np.random.default_rng(0)
    means, n = rng.random(10), 200_000
    uniforms, tosses = rng.random(n), rng.random(n)
    a, b = [1.0] * 10, [1.0] * 10
    policy = Policy.of(of_beta(a, b))
    begun = time.process_time()
    for i in range(n):
        arm = policy.choose(float(uniforms[i])).arm
        reward = float(tosses[i] < means[arm])
        a[arm] += reward
        b[arm] += 1.0 - reward
        if policy.is_stale(i + 1):
            policy = Policy.of(of_beta(a, b), n=i + 1)
    print(f"Beta, exact propensities: {n / (time.process_time() - begun) / 1e3:.0f}")
    learner = LinearLearner(LinearArms.begin(np.full(10, 0.5), 16))
    n = 20_000
    xs = rng.normal(size=(n, 16))
    begun = time.process_time()
    for x in xs:
        expected, sds = learner.arms.moments(x)
        arm = int((expected + sds * rng.standard_normal(10)).argmax())
        learner.tell(arm, x, 0.5)
    print(f"Linear, 16 features: {n / (time.process_time() - begun) / 1e3:.0f}", flush=True)


def main() -> None:
    """Parse the command line and print what was asked for."""
    parser = argparse.ArgumentParser(description="The runtime bandit.")
    parts = {"flip": flip, "shared": shared, "warm": warm, "speed": speed}
    parser.add_argument("--only", nargs="+", choices=list(parts), default=list(parts))
    for name in parser.parse_args().only:
        parts[name]()


if __name__ == "__main__":
    main()
