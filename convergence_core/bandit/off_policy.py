"""Off-policy estimates of another policy's rewards, from the log of decisions.

Each logged request has an arm a, a reward r and the propensity p of that arm. The target policy
would have chosen a with probability q. With ``w = q / p``:

    SNIPS = sum of w r / sum of w                       (A. Swaminathan, T. Joachims, 2015, eq. 7)  (1)

*The interval* is that of ``convergence_core.gate.intervals``, which assumes only the range of the
averaged values. The largest weight in the log counts as the largest possible one.

*Effective sample size*: ``(sum w)^2 / sum w^2`` (2), the number of requests of equal weight with
the same information (A. Kong, 1992). Below ``least_ess`` an alarm reports that few requests
decide. Another alarm reports a mean weight implausibly far from 1 by empirical likelihood (A.
Owen, 1988),

    -2 log R = 2 max_t sum_i log(1 + t (w_i - 1)),    about chi-squared with 1 degree of freedom   (3)

In that case the propensities are wrong, or the log lacks arms that the policy uses.

*No estimate* is given if the effective sample size, or the number of requests whose arm the policy
may choose, is below ``MIN_MATCHING``. The same holds if the mean weight is implausible or outside
``MEAN_WEIGHTS``: the log then hardly contains the policy's choices, and probably lacks the largest
weight.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import chdtri

from convergence_core.gate.intervals import mean_ends

Floats = NDArray[np.float64]

LEAST_ESS = 100.0
"""Default effective sample size below which the alarm is raised."""
MIN_MATCHING = 10
"""Minimum effective sample size, and minimum requests whose arm the policy may choose, for an
estimate."""
MEAN_WEIGHTS = (0.5, 2.0)
"""Range of the mean weight in which an estimate is given; 1 is expected."""
_IMPLAUSIBLE = 1e-4
"""Probability below which a mean weight counts as implausible."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Log:
    """Logged requests; each array is (n,)."""

    actions: NDArray[np.int64]
    """Arm of each request."""
    rewards: Floats
    """Rewards in [0, 1]."""
    propensities: Floats
    """Probability of that arm when the request was routed, in (0, 1]."""
    arms: tuple[str, ...] = ()
    """Names of the arms by index."""
    n_left_out: int = 0
    """Number of excluded rows without reward or propensity."""

    def __post_init__(self) -> None:
        """Reject an invalid log.

        Raises:
            ValueError: Shapes differ, a reward is not in [0, 1], or a propensity not in (0, 1].
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
        """Number of requests."""
        return int(self.actions.size)

    def probabilities(self, target: ArrayLike) -> Floats:
        """Return the policy's probability of each logged arm, (n,).

        Args:
            target: Probability of every arm, (n_arms,).

        Raises:
            ValueError: The probabilities do not fit the log or do not sum to 1.
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
    """Estimate of a policy's mean reward from a log, with diagnostics."""

    n: int
    ess: float
    """Effective sample size, in requests."""
    mean_weight: float
    """Mean weight, 1 in expectation."""
    largest_weight: float
    logged: float
    """Mean reward of the logged policy."""
    n_matching: int
    """Number of requests whose arm the policy may choose."""
    mean: float | None
    """Estimated mean reward; ``None`` if the log is insufficient, see ``missing``."""
    low: float | None
    """Interval of the estimate is [``low``, ``high``]."""
    high: float | None
    level: float
    """Coverage probability of the interval."""
    missing: str | None
    """Why there is no estimate; ``None`` if there is one."""
    alarms: tuple[str, ...]
    """Reasons to distrust the estimate; empty if there are none."""


def estimate(
    log: Log,
    target: ArrayLike,
    *,
    level: float = 0.95,
    least_ess: float = LEAST_ESS,
) -> OffPolicyEstimate:
    """Estimate the mean reward of a policy from the log of another.

    Args:
        log: Log of at least one request.
        target: Probabilities of the policy, (n_arms,).
        level: Coverage probability of the interval, in (0, 1).
        least_ess: Effective sample size below which an alarm is raised.

    Raises:
        ValueError: The log is empty, or an argument does not fit.
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
        met = weights > 0.0  # zero weights do not affect the ratio
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
    """Return why there is no estimate; ``None`` if the log is sufficient."""
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
    if gaps[0] >= 0.0 or gaps[-1] <= 0.0:  # no reweighting has mean 1 unless all weights are 1
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
