"""Off-policy estimates of another policy's rewards, from the log of decisions.

Each logged request has an arm a, a reward r and the propensity p of that arm; the policy in question
would have chosen a with probability q. With ``w = q / p``:

    SNIPS = sum of w r / sum of w                       (A. Swaminathan, T. Joachims, 2015, eq. 7) (1)

*The interval* is that of ``convergence_core.gate.intervals``, which assumes the range of what is
averaged and nothing of its distribution; the largest weight of the log counts as the largest there
is.

*Effective sample size*: ``(sum w)^2 / sum w^2`` (2), the number of requests of equal weight that
would say as much (A. Kong, 1992). Below ``least_ess`` an alarm says that few requests decide. Another
fires where the weights' mean is implausibly far from 1 by empirical likelihood (A. Owen, 1988),

    -2 log R = 2 max_t sum_i log(1 + t (w_i - 1)),    about chi-squared with 1 degree of freedom   (3)

then the propensities are wrong, or the log lacks arms that the policy uses.

*No estimate* is given below ``MIN_MATCHING`` of effective sample size or of requests whose arm the
policy would ever choose, or where the mean weight is implausible or not within ``MEAN_WEIGHTS``: what
the policy would do was then hardly logged, and the largest weight there is was likely not met.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import chdtri

from convergence_core.gate.intervals import mean_ends

Floats = NDArray[np.float64]

LEAST_ESS = 100.0
"""Effective sample size below which the alarm fires."""
MIN_MATCHING = 10
"""Effective sample size, and requests whose arm the policy may choose, below which nothing is estimated."""
MEAN_WEIGHTS = (0.5, 2.0)
"""Least and largest mean weight with which something is estimated; 1 is expected."""
_IMPLAUSIBLE = 1e-4
"""Probability below which a mean weight is called implausible."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Log:
    """Logged requests, each array (n,)."""

    actions: NDArray[np.int64]
    """Arm that served."""
    rewards: Floats
    """In [0, 1]."""
    propensities: Floats
    """Probability of that arm when it was chosen, in (0, 1]."""
    arms: tuple[str, ...] = ()
    """Names of the arms, by number."""
    n_left_out: int = 0
    """Rows without reward or propensity, which say nothing."""

    def __post_init__(self) -> None:
        """Refuse what is no log.

        Raises:
            ValueError: shapes differ, a reward is not in [0, 1], a propensity not in (0, 1].
        """
        if self.actions.ndim != 1 or not (
            self.actions.shape == self.rewards.shape == self.propensities.shape
        ):
            raise ValueError("actions, rewards and propensities must have one entry per request")
        if not np.all((self.rewards >= 0.0) & (self.rewards <= 1.0)):
            raise ValueError("each reward must be a finite number in [0, 1]")
        if not np.all((self.propensities > 0.0) & (self.propensities <= 1.0)):
            raise ValueError(
                "each propensity must lie in (0, 1]; leave out requests whose propensity is unknown"
            )
        if np.any(self.actions < 0):
            raise ValueError("actions must be integers of 0 or more")

    @property
    def n(self) -> int:
        """Requests."""
        return int(self.actions.size)

    def probabilities(self, target: ArrayLike) -> Floats:
        """Return the policy's probability of each logged arm, (n,).

        Args:
            target: of every arm, (n_arms,).

        Raises:
            ValueError: the probabilities do not fit the log or do not sum to 1.
        """
        q = np.asarray(target, dtype=np.float64)
        if q.ndim != 1 or (self.n and self.actions.max() >= q.size):
            raise ValueError(
                f"the policy must give a probability to each of the logged arms, but got shape "
                f"{np.shape(target)}"
            )
        if not np.all(q >= 0.0) or not np.isclose(q.sum(), 1.0, atol=1e-6):
            raise ValueError("the policy's probabilities must be 0 or more and sum to 1")
        return q[self.actions]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPolicyEstimate:
    """Estimate of a policy's mean reward from a log, and how far the log supports it."""

    n: int
    ess: float
    """Effective sample size, in requests."""
    mean_weight: float
    """1 in expectation."""
    largest_weight: float
    logged: float
    """Mean reward of the policy that ran."""
    n_matching: int
    """Requests whose arm the policy may choose."""
    mean: float | None
    """Mean reward; ``None``: the log says too little, see ``missing``."""
    low: float | None
    """Ends of its interval."""
    high: float | None
    level: float
    """Probability that such an interval covers."""
    missing: str | None
    """Why there is no estimate; ``None`` if there is one."""
    alarms: tuple[str, ...]
    """Why the numbers are not to be trusted; empty: nothing speaks against them."""


def estimate(
    log: Log,
    target: ArrayLike,
    *,
    level: float = 0.95,
    least_ess: float = LEAST_ESS,
) -> OffPolicyEstimate:
    """Estimate the mean reward of a policy from the log of another.

    Args:
        log: at least one request.
        target: the policy's probabilities, (n_arms,).
        level: probability that the interval covers, in (0, 1).
        least_ess: see the module.

    Raises:
        ValueError: the log is empty, or an argument does not fit.
    """
    if not log.n:
        raise ValueError("the log must hold at least one request")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie in (0, 1), but got {level}")
    weights = log.probabilities(target) / log.propensities
    total, squares = float(weights.sum()), float((weights**2).sum())
    ess = total**2 / squares if squares else 0.0  # (eq. 2)
    n_matching = int(np.count_nonzero(weights))
    missing = _missing(ess, n_matching, weights)
    mean = low = high = None
    if missing is None:
        met = weights > 0.0  # the others say nothing of the ratio
        ends = mean_ends(log.rewards[met], weights=weights[met], tail=(1.0 - level) / 2.0)
        mean = float((weights * log.rewards).sum() / total)  # (eq. 1)
        low, high = min(ends[0], mean), max(ends[1], mean)
    return OffPolicyEstimate(
        n=log.n,
        ess=ess,
        mean_weight=total / log.n,
        largest_weight=float(weights.max()),
        logged=float(log.rewards.mean()),
        n_matching=n_matching,
        mean=mean,
        low=low,
        high=high,
        level=level,
        missing=missing,
        alarms=_alarms(weights, ess, least_ess),
    )


def _missing(ess: float, n_matching: int, weights: Floats) -> str | None:
    """Return why nothing is estimated; ``None`` means enough is logged."""
    n = weights.size
    if not n_matching:
        return f"not enough: none of {n:,} requests went to an arm that this policy chooses"
    if n_matching < MIN_MATCHING or ess < MIN_MATCHING:
        return (
            f"not enough: {n_matching:,} of {n:,} requests went to arms that this policy chooses, "
            f"an effective {ess:.1f}; both numbers must reach {MIN_MATCHING}"
        )
    mean = float(weights.mean())
    if not MEAN_WEIGHTS[0] <= mean <= MEAN_WEIGHTS[1] or _is_implausible(weights):
        return (
            f"not enough: the mean weight is {mean:.3g} but should be 1: the log lacks most of what "
            "this policy would choose, or the propensities are wrong"
        )
    return None


def _is_implausible(weights: Floats) -> bool:
    """Return whether a mean weight this far from 1 has a probability below ``_IMPLAUSIBLE``."""
    gaps, counts = np.unique(weights - 1.0, return_counts=True)
    if gaps[0] >= 0.0 or gaps[-1] <= 0.0:  # no weighting has the mean 1, but where all are 1
        return bool(gaps.any())
    inside = 1.0 / counts.sum() - 1.0  # at the maximum no 1 + t gap is below 1 / n
    t = brentq(lambda t: counts @ (gaps / (1.0 + t * gaps)), inside / gaps[-1], inside / gaps[0])
    statistic = 2.0 * float(counts @ np.log1p(t * gaps))  # (eq. 3)
    return bool(statistic > chdtri(1, _IMPLAUSIBLE))


def _alarms(weights: Floats, ess: float, least_ess: float) -> tuple[str, ...]:
    alarms = []
    if ess < least_ess:
        alarms.append(
            f"the effective sample size is {ess:.1f} of {weights.size} requests, below "
            f"{least_ess:g}: a few requests decide everything. Log a policy closer to this one, or "
            "more requests."
        )
    if _is_implausible(weights):
        alarms.append(
            f"the mean weight is {weights.mean():.3g} and should be 1: the propensities are wrong, "
            "or the log lacks arms that this policy uses."
        )
    return tuple(alarms)
