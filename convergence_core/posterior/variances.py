"""The few numbers that empirical Bayes learns from all candidates together.

Each is steadied by a weak guess, so that one generation, or one candidate, gives numbers that can
be lived with.
"""

from dataclasses import dataclass

import numpy as np

from convergence_core.posterior.evidence import Evidence

GUESSED_ROOT_VARIANCE = 0.01
"""Between candidates, before there are any: means differ by about .1."""
GUESSED_NOISE_SHARE = 0.25
"""Of all variance, where nothing tells noise from candidates."""
GUESSED_SHIFT_SD = 0.05
"""How far children's mean may lie from their parents', before there are any."""
NOISE_PSEUDO_COUNT = 2.0
VAGUE = 0.25
"""Variance of a mean reward of which nothing is known."""
LEAST_COIN_SHARE = 0.25
"""Of a coin's variance p(1-p), what cases leave unexplained at least."""
FLOOR = 1e-6
"""Smallest variance."""
_GRID = np.logspace(-4, 2.5, 40)
"""Variances that are weighed against each other, in units of the guess."""
MIN_REPEAT_DOF = 10
"""Repeats that are needed before repeat noise is told from what is a case's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variances:
    """Hyper-parameters of ``CaseModel``; rewards squared, unless said otherwise."""

    center: float
    """Mean of candidates without parents, a reward."""
    center_variance: float = 0.0
    """How little is known of ``center``; 0: it is known."""
    root: float
    """Variance between candidates without parents."""
    shift: float = 0.0
    """Mean of a child less the mean of its parents, a reward."""
    child: float = GUESSED_ROOT_VARIANCE
    """Variance of a child around its parents."""
    case: float = FLOOR
    """Variance between cases' effects."""
    noise: float
    """Variance of one case's reward around candidate + case effect."""
    lasting: float = 0.0
    """Share of ``noise`` that a repeat of the same cell would show again; such noise is gone
    once all cases were seen. 0 where no cell was repeated: nothing tells the two apart."""
    dof: float = float("inf")
    """Degrees of freedom behind ``noise``."""


def guess(evidence: Evidence) -> Variances:
    """Return where the estimation starts."""
    rewards = evidence.mean[evidence.count > 0]
    variance = float(rewards.var()) if len(rewards) else 0.0
    return Variances(
        center=_center(evidence, rewards),
        center_variance=VAGUE,
        root=GUESSED_ROOT_VARIANCE,
        case=max(variance / 4, FLOOR),
        noise=max(variance * GUESSED_NOISE_SHARE, FLOOR),
        lasting=0.0,
        dof=NOISE_PSEUDO_COUNT,
    )


def noise_of(
    evidence: Evidence, residual: np.ndarray, case_dof: float
) -> tuple[float, float, float]:
    """Return the variances' ``noise``, ``lasting`` and ``dof``.

    Args:
        evidence: all rewards.
        residual: reward less case effect less the member's mean of that, (n_seen,).
        case_dof: degrees of freedom that the case effects took.
    """
    seen = evidence.count > 0
    prior = float(evidence.mean[seen].var()) * GUESSED_NOISE_SHARE
    dof = max(float(seen.sum()) - len(evidence.ids) - case_dof, 0.0)
    noise = (float((residual**2).sum()) + NOISE_PSEUDO_COUNT * prior) / (dof + NOISE_PSEUDO_COUNT)
    if evidence.binary:
        # Rewards of one kind only, as of few cases, say little of how rare the other kind is.
        coin = _center(evidence, evidence.mean[seen])
        noise = max(noise, LEAST_COIN_SHARE * coin * (1 - coin))
    noise = max(noise, FLOOR)
    lasting = 0.0
    if evidence.repeat_dof >= MIN_REPEAT_DOF:
        of_repeats = evidence.repeat_sum / evidence.repeat_dof
        per_cell = of_repeats * float((1.0 / evidence.count[seen]).mean())
        lasting = min(1.0, max(0.0, 1.0 - per_cell / noise))
    return noise, lasting, dof + NOISE_PSEUDO_COUNT


def variance_of(distance: np.ndarray, sampling: np.ndarray, guessed: float) -> float:
    """Return the posterior mean of a variance v, where distance ~ N(0, v + sampling).

    Its prior is that of the square of N(0, guessed). A moment estimate is 0 as often as not where
    cells are few, which would make a run certain that all candidates are alike.

    Args:
        distance: adjusted means less what was expected, (n,).
        sampling: their variances without v, (n,).
        guessed: the prior's mean.
    """
    grid = guessed * _GRID  # (n_grid,)
    total = grid[:, None] + sampling  # (n_grid, n)
    log_density = -0.5 * (np.log(total) + distance**2 / total).sum(axis=1)
    log_density += 0.5 * np.log(grid) - 0.5 * grid / guessed  # per step of log v
    density = np.exp(log_density - log_density.max())
    return max(float(density @ grid / density.sum()), FLOOR)


def children_of(
    innovation: np.ndarray, *, slope: np.ndarray, sampling: np.ndarray, old: Variances
) -> tuple[float, float]:
    """Return the variances' ``shift`` and ``child``.

    Args:
        innovation: children's adjusted means less their prior means, (n_children,).
        slope: how much each prior mean moves with ``shift``; generations add up, (n_children,).
        sampling: variances of the innovations but for ``child``, (n_children,).
        old: the estimates so far, which the priors were made with.
    """
    guessed = old.root / 2
    if len(innovation) == 0:
        return 0.0, guessed
    weight = slope / (old.child + sampling)
    pull = float(weight @ (innovation + slope * old.shift))
    shift = pull / (float(weight @ slope) + GUESSED_SHIFT_SD**-2)
    left = innovation - slope * (shift - old.shift)
    return shift, variance_of(left, sampling, guessed)


def center_edge(evidence: Evidence) -> float:
    """Return how near to 0 or 1 the center of zeros and ones may lie: those of one kind prove little."""
    n = float((evidence.count > 0).sum())
    return 0.5 / (n + 1)


def _center(evidence: Evidence, rewards: np.ndarray) -> float:
    if len(rewards) == 0:
        return 0.5
    if evidence.binary:
        return float((rewards.sum() + 0.5) / (len(rewards) + 1))
    return float(rewards.mean())
