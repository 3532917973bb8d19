"""Sixty arms, one expert that knows them, guesses, or lies: what thoughts cost and bring in draws."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from convergence_core.rlp.bins import TENTHS
from convergence_core.rlp.experts import Weights, strength
from convergence_core.rlp.gain import e_value, information_gain
from tests.rlp.thoughts import binned_normal

Kind: TypeAlias = Literal["good", "useless", "adversarial"]

N_ARMS = 60
N_PULLS = 120
BATCH = 8
NOISE = 0.15
PRIOR_MEAN, PRIOR_SD = 0.5, 0.2
EXPERT_SD = 0.16


def means_of(kind: Kind, mu: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return what an expert believes of the arms, (N_ARMS,)."""
    slope, spread = {"good": (0.7, 0.1), "useless": (0.0, 0.14), "adversarial": (-0.7, 0.1)}[kind]
    said = 0.5 + slope * (mu - 0.5) + spread * rng.standard_normal(N_ARMS)
    return np.asarray(np.clip(said, 0.02, 0.98))


def capped(means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of priors that count for five trials at most, (N_ARMS,) each."""
    p = np.array([binned_normal(mean, EXPERT_SD) for mean in means])
    mu = np.clip(TENTHS.mean_of(p), 0.01, 0.99)
    nu = strength(mu, TENTHS.variance_of(p))
    return mu, mu * (1.0 - mu) / (nu + 1.0)


class Arms:
    """One world and one course through it."""

    def __init__(
        self, kinds: tuple[Kind, ...], rng: np.random.Generator, *, caps: bool = False
    ) -> None:
        self.rng = rng
        self.mu = np.clip(0.5 + 0.2 * rng.standard_normal(N_ARMS), 0.0, 1.0)
        self.sums, self.counts = np.zeros(N_ARMS), np.zeros(N_ARMS)
        said = [means_of(kind, self.mu, rng) for kind in kinds]
        base = np.full(N_ARMS, PRIOR_MEAN), np.full(N_ARMS, PRIOR_SD**2)
        self.beliefs = [base, *((means, np.full(N_ARMS, EXPERT_SD**2)) for means in said)]
        """Of the predictions: as sure as the expert is."""
        self.priors = [base, *(capped(means) for means in said)] if caps else self.beliefs
        """Of the draws."""
        self.weights = Weights.first(len(kinds))

    def posterior(self, prior: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance on top of the data, (N_ARMS,) each."""
        mean, variance = prior
        precision = 1.0 / variance + self.counts / NOISE**2
        return (mean / variance + self.sums / NOISE**2) / precision, 1.0 / precision

    def choose(self, expert: int) -> int:
        mean, variance = self.posterior(self.priors[expert])
        return int(np.argmax(mean + np.sqrt(variance) * self.rng.standard_normal(N_ARMS)))

    def predictive(self, expert: int, arm: int) -> np.ndarray:
        """Return what an expert expects of an arm's next reward, (N_BINS,)."""
        mean, variance = (float(part[arm]) for part in self.posterior(self.beliefs[expert]))
        return binned_normal(mean, float(np.sqrt(variance + NOISE**2)))

    def run(self, *, batch: int = BATCH, trusts: bool = False, thinks: bool = True) -> float:
        """Return the regret of all pulls."""
        regret = 0.0
        experts = range(1, len(self.priors))
        for _ in range(N_PULLS // batch):
            lottery = self.weights.lottery(list(experts)) if thinks else {0: 1.0}
            chances = list(lottery.values())
            plan = []
            for place in range(batch):
                is_reserved = place < batch // 2
                k = 0 if is_reserved else int(self.rng.choice(list(lottery), p=chances))
                # Whoever the base posterior chose was chosen without a thought.
                plan.append((k == 0, self.choose(1 if trusts else k)))
            forecasts = {
                (k, arm): self.predictive(k, arm)
                for exogenous, arm in plan
                if exogenous and thinks
                for k in (0, *experts)
            }
            gains: Mapping[int, list[float]] = {k: [] for k in experts}
            for exogenous, arm in plan:
                reward = float(np.clip(self.mu[arm] + NOISE * self.rng.standard_normal(), 0, 1))
                regret += float(self.mu.max() - self.mu[arm])
                if exogenous and thinks:
                    for k in experts:
                        p, base = forecasts[k, arm], forecasts[0, arm]
                        gains[k].append(information_gain(p, base, TENTHS.bin_of(reward)))
                self.sums[arm] += reward
                self.counts[arm] += 1
            if thinks:
                self.weights = self.weights.after({k: e_value(g) for k, g in gains.items() if g})
        return regret


def regrets(
    kinds: tuple[Kind, ...], n_seeds: int, *, caps: bool = False, **how: Any
) -> np.ndarray:
    """Return the regret in each world, (n_seeds,); the same seed is the same world."""
    worlds = (Arms(kinds, np.random.default_rng(seed), caps=caps) for seed in range(n_seeds))
    return np.array([world.run(**how) for world in worlds])
