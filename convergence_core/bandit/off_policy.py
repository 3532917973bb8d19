"""Off-policy estimates of another policy's rewards, from the log of decisions.

Each logged request has an arm a, a reward r and the propensity p of that arm; the policy in question
would have chosen a with probability q. With ``w = q / p``:

    IPS     mean of w r                                 (D. Horvitz, D. Thompson, 1952)            (1)
    SNIPS   sum of w r / sum of w                       (A. Swaminathan, T. Joachims, 2015, eq. 7) (2)
    DR      mean of sum_a q(a) m(a) + w (r - m(a))      (M. Dudík, J. Langford, L. Li, 2011)       (3)

m is any model of the reward; DR is unbiased whatever it is, and closer the better it fits.

*Intervals* are those of ``convergence_core.gate.intervals``, which assume the range of what is
averaged and nothing of its distribution; the largest weight of the log counts as the largest there
is. That of the ratio is also one of IPS: both estimate the same value, and the ratio's is narrower,
for it knows that w has the mean 1.

*Effective sample size*: ``(sum w)^2 / sum w^2`` (4), the number of requests of equal weight that
would say as much (A. Kong, 1992). Below ``least_ess`` an alarm says that few requests decide. Another
fires where the weights' mean is implausibly far from 1 by empirical likelihood (A. Owen, 1988),

    -2 log R = 2 max_t sum_i log(1 + t (w_i - 1)),    about chi-squared with 1 degree of freedom   (5)

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
                "each propensity must lie in (0, 1]; a request whose propensity is unknown says "
                "nothing about another policy: leave it out"
            )
        if np.any(self.actions < 0):
            raise ValueError("actions must be numbers from 0")

    @property
    def n(self) -> int:
        """Requests."""
        return int(self.actions.size)

    def probabilities(self, target: ArrayLike) -> Floats:
        """Return the policy's probability of each logged arm, (n,).

        Args:
            target: of every arm, (n_arms,) for a policy that is the same for all requests, or
                (n, n_arms).

        Raises:
            ValueError: the probabilities do not fit the log or do not sum to 1.
        """
        q = np.asarray(target, dtype=np.float64)
        if q.ndim == 1:
            q = np.broadcast_to(q, (self.n, q.size))
        n_arms = q.shape[-1]
        if q.shape != (self.n, n_arms) or (self.n and self.actions.max() >= n_arms):
            raise ValueError(
                f"the policy must give a probability to each of the logged arms, but got shape "
                f"{np.shape(target)}"
            )
        if not np.all(q >= 0.0) or not np.allclose(q.sum(axis=1), 1.0, atol=1e-6):
            raise ValueError("the policy's probabilities must be 0 or more and sum to 1")
        return q[np.arange(self.n), self.actions]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyValue:
    """Estimate of a policy's mean reward, with its interval."""

    mean: float
    low: float
    high: float
    level: float

    @classmethod
    def around(cls, mean: float, ends: tuple[float, float], level: float) -> "PolicyValue":
        """Return the value with an interval that is widened to hold the mean."""
        low, high = ends
        return cls(mean=mean, low=min(low, mean), high=max(high, mean), level=level)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPolicyEstimate:
    """Estimates of a policy's value from a log, and how far the log supports them."""

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
    ips: PolicyValue | None
    """``None``, as of the other two: the log says too little, see ``missing``."""
    snips: PolicyValue | None
    dr: PolicyValue | None
    """Also ``None`` where no model of the reward was given."""
    missing: str | None
    """Why there is no estimate; ``None`` if there is one."""
    alarms: tuple[str, ...]
    """Why the numbers are not to be trusted; empty: nothing speaks against them."""


def estimate(
    log: Log,
    target: ArrayLike,
    *,
    model: ArrayLike | None = None,
    level: float = 0.95,
    least_ess: float = LEAST_ESS,
) -> OffPolicyEstimate:
    """Estimate the mean reward of a policy from the log of another.

    Args:
        log: at least one request.
        target: the policy's probabilities, (n_arms,) or (n, n_arms).
        model: expected reward of every arm, (n_arms,) or (n, n_arms), in [0, 1], fitted on other
            requests (``fitted_model`` does so by folds); for DR.
        level: probability that an interval covers, in (0, 1).
        least_ess: see the module.

    Raises:
        ValueError: the log is empty, or an argument does not fit.
    """
    if not log.n:
        raise ValueError("an empty log says nothing. Give one request at least.")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie in (0, 1), but got {level}")
    weights = log.probabilities(target) / log.propensities
    expected = None if model is None else _expected(log, target, model)
    total, squares = float(weights.sum()), float((weights**2).sum())
    ess = total**2 / squares if squares else 0.0  # (eq. 4)
    n_matching = int(np.count_nonzero(weights))
    missing = _missing(ess, n_matching, weights)
    ips = snips = dr = None
    if missing is None:
        ips, snips = _weighted(log, weights, level)
        dr = None if expected is None else _doubly_robust(log, weights, *expected, level)
    return OffPolicyEstimate(
        n=log.n,
        ess=ess,
        mean_weight=total / log.n,
        largest_weight=float(weights.max()),
        logged=float(log.rewards.mean()),
        n_matching=n_matching,
        ips=ips,
        snips=snips,
        dr=dr,
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
            f"worth {ess:.1f} of equal weight; {MIN_MATCHING} of either are needed"
        )
    mean = float(weights.mean())
    if not MEAN_WEIGHTS[0] <= mean <= MEAN_WEIGHTS[1] or _is_implausible(weights):
        return (
            f"not enough: the mean weight is {mean:.3g} and should be 1, so most of what this policy "
            "would do is not in the log, or the propensities are wrong"
        )
    return None


def _is_implausible(weights: Floats) -> bool:
    """Return whether a mean weight this far from 1 has a probability below ``_IMPLAUSIBLE``."""
    gaps, counts = np.unique(weights - 1.0, return_counts=True)
    if gaps[0] >= 0.0 or gaps[-1] <= 0.0:  # no weighting has the mean 1, but where all are 1
        return bool(gaps.any())
    inside = 1.0 / counts.sum() - 1.0  # at the maximum no 1 + t gap is below 1 / n
    t = brentq(lambda t: counts @ (gaps / (1.0 + t * gaps)), inside / gaps[-1], inside / gaps[0])
    statistic = 2.0 * float(counts @ np.log1p(t * gaps))  # (eq. 5)
    return bool(statistic > chdtri(1, _IMPLAUSIBLE))


def _weighted(log: Log, weights: Floats, level: float) -> tuple[PolicyValue, PolicyValue]:
    """Return IPS and SNIPS."""
    met = weights > 0.0  # the others say nothing of the ratio
    ends = mean_ends(log.rewards[met], weights=weights[met], tail=(1.0 - level) / 2.0)
    products = weights * log.rewards
    ips, snips = float(products.mean()), float(products.sum() / weights.sum())  # (eq. 1, 2)
    return PolicyValue.around(ips, ends, level), PolicyValue.around(snips, ends, level)


def _expected(log: Log, target: ArrayLike, model: ArrayLike) -> tuple[Floats, Floats]:
    """Return the model's mean reward of the policy and of the logged arm at each request, (n,)."""
    q = np.atleast_2d(np.asarray(target, dtype=np.float64))
    m = np.atleast_2d(np.asarray(model, dtype=np.float64))
    if m.shape[-1] != q.shape[-1] or m.shape[0] not in {1, log.n} or not np.all(np.isfinite(m)):
        raise ValueError("the model must give a finite expected reward to each arm of the policy")
    expected = np.broadcast_to((q * m).sum(axis=1), (log.n,))
    return expected, np.broadcast_to(m, (log.n, m.shape[-1]))[np.arange(log.n), log.actions]


def _doubly_robust(
    log: Log, weights: Floats, expected: Floats, chosen_means: Floats, level: float
) -> PolicyValue:
    values = expected + weights * (log.rewards - chosen_means)  # (eq. 3)
    # The least and the most that a reward in [0, 1] could have made of any request.
    largest = float(weights.max())
    lowest = min(
        float(expected.min()) - largest * max(float(chosen_means.max()), 0.0), float(values.min())
    )
    highest = max(
        float(expected.max()) + largest * max(1.0 - float(chosen_means.min()), 0.0),
        float(values.max()),
    )
    low, high = mean_ends(values, tail=(1.0 - level) / 2.0, lowest=lowest, highest=highest)
    return PolicyValue.around(float(values.mean()), (max(low, 0.0), min(high, 1.0)), level)


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


def fitted_model(log: Log, n_arms: int, *, n_folds: int = 5) -> Floats:
    """Return each arm's mean reward as the other folds saw it, (n, n_arms), for DR.

    Fold k holds every ``n_folds``-th request from k on. One success in two is added to each mean.

    Raises:
        ValueError: fewer than two folds, or an arm beyond ``n_arms``.
    """
    if n_folds < 2 or (log.n and log.actions.max() >= n_arms):
        raise ValueError("n_folds must be 2 or more, and n_arms cover the logged arms")
    model = np.empty((log.n, n_arms))
    fold = np.arange(log.n) % n_folds
    for k in range(n_folds):
        others = fold != k
        sums = np.bincount(log.actions[others], log.rewards[others], n_arms)
        numbers = np.bincount(log.actions[others], minlength=n_arms)
        model[~others] = (sums + 1.0) / (numbers + 2.0)
    return model
