"""Twenty Bernoulli arms and a judge who compared them: what its word is worth among the draws."""

from typing import Literal, TypeAlias

import numpy as np

from convergence_core.rlp.gain import mixed
from convergence_core.sao.bradley_terry import Row, fit
from convergence_core.sao.expert import NU, first_weight, weight_after
from convergence_core.sao.preferences import sigmoid

Kind: TypeAlias = Literal["off", "good", "random", "adversarial"]

N_ARMS = 20
N_PAIRS = 60
N_PULLS = 150
MEAN, SPREAD = 0.5, 0.12
"""g and s, as in the simulation that set the start weight."""
SLOPES = {"good": 8.0, "random": 8.0, "adversarial": -8.0}


def means_said(kind: Kind, mu: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return m of each arm from sixty judged pairs, (N_ARMS,)."""
    # What a random judge likes is as spread out as the truth, and has nothing to do with it.
    liked = 0.5 + 0.15 * rng.standard_normal(N_ARMS) if kind == "random" else mu
    rows = []
    for _ in range(N_PAIRS):
        i, j = (int(x) for x in rng.choice(N_ARMS, 2, replace=False))
        odds = SLOPES[kind] * (liked[i] - liked[j]) + 0.5 * float(rng.standard_normal())
        p = sigmoid(float(odds))
        rows.append(Row(i=i, j=j, position=0.0, log_length_ratio=0.0, p=p))
    merits = fit(rows, N_ARMS).standardized
    return np.asarray(np.clip(MEAN + SPREAD * merits, 0.01, 0.99))


def regrets(
    kind: Kind,
    n_seeds: int,
    *,
    trust: float = 1.0,
    start: float | None = None,
    first_seed: int = 0,
):
    """Return the regret of each world after all pulls, (n_seeds,); a seed is a world."""
    start = first_weight(trust) if start is None else start
    seeds = range(first_seed, first_seed + n_seeds)
    return np.array([_regret(kind, np.random.default_rng(seed), start) for seed in seeds])


def _regret(kind: Kind, rng: np.random.Generator, start: float) -> float:
    mu = np.clip(0.5 + 0.15 * rng.standard_normal(N_ARMS), 0.02, 0.98)
    if kind == "off":
        start = 0.0
        prior = np.ones((2, N_ARMS))
    else:
        means = means_said(kind, mu, np.random.default_rng([int(rng.integers(2**31)), 1]))
        prior = NU * np.stack([means, 1.0 - means])
    # Off or not, the same stream follows.
    pulls = np.random.default_rng(int(mu[0] * 2**40))
    counts = np.zeros((2, N_ARMS))  # successes, failures
    base = np.ones((2, N_ARMS))
    weight, regret = start, 0.0
    for u in pulls.random(N_PULLS):
        is_judges = u < weight
        alpha, beta = (prior if is_judges else base) + counts
        arm = int(np.argmax(pulls.beta(alpha, beta)))
        won = int(pulls.random() < mu[arm])
        regret += float(mu.max() - mu[arm])
        if start > 0.0:
            q = _predictive(base + counts, arm)
            p = mixed(_predictive(prior + counts, arm), q)
            weight = weight_after(weight, float(p[won] / q[won]), start)
        counts[1 - won, arm] += 1
    return regret


def _predictive(parameters: np.ndarray, arm: int) -> np.ndarray:
    """Return the probabilities of 0 and 1, (2,)."""
    a, b = parameters[:, arm]
    return np.asarray(np.array([b, a]) / (a + b))
