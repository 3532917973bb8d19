"""Consensus of several raters: crossed random effects of answers and raters.

The reward y_ar that rater r gives answer a reads

    y_ar = mu + q_a + b_r + e_ar,    q_a ~ N(0, v_q),  b_r ~ N(0, v_b),  e_ar ~ N(0, v_r)
    (1)

with mu free. Answers differ in quality, raters in their general level (bias) and the spread of
their ratings (noise). After elimination of the answers, the biases have (Henderson 1950)

    precision P = diag(sum_a w_ar + 1 / v_b) - w^T diag(1 / d) w,    d_a = sum_r w_ar + 1 / v_q
    (2)
    q_a = (sum_r w_ar (y_ar - mu - b_r)) / d_a,    w_ar = 1 / v_r where r rated a, else 0
    (3)

P is block diagonal, with one block for each group of raters that answers connect. A variance is
the sum of squares over its degrees of freedom (Fellner 1986, Schall 1991). Its prior counts as a
few ratings, so that one rater, one answer or equal ratings also have an estimate:

    v = (n_0 v_0 + sum u^2) / (n_0 + sum (1 - Var(u) / v))
    (4)

Thumbs are ratings at the ends of the scale, so a user's thumbs and ratings count as two raters.
The model has no reversed raters: such a rater counts as noisy and gets little weight.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from convergence_core.feedback.records import Rating

Floats: TypeAlias = NDArray[np.float64]

Z_95: Final = 1.959964
"""Standard errors on each side of a 95 % interval."""
PRIOR_QUALITY, PRIOR_BIAS, PRIOR_NOISE = 0.25, 0.06, 0.25
"""Prior variances in rewards squared: half the scale between answers and for noise, a quarter
between raters (standard deviations .5, .25 and .5 on a scale from -1 to 1).
"""
PRIOR_WEIGHT: Final = 2.0
"""Number of answers, raters or ratings that the priors of the first two variances and the mean
noise count as.
"""
NOISE_WEIGHT: Final = 6.0
"""Number of ratings that the mean noise counts as next to those of one rater."""
TOLERANCE, MOST_STEPS = 1e-4, 200
"""Relative change of the variances at which (4) stops, and maximum iterations."""
LEAST = 1e-6
"""Minimum variance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsensusReward:
    """Reward of one answer by all of its raters."""

    reward: float
    """Posterior mean on the scale of the average rater, in [-1, 1]."""
    standard_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterProfile:
    """Bias and noise of one rater."""

    user_id: str
    kind: Literal["rating", "thumbs"]
    bias: float
    """Posterior mean of the rater's addition to each reward, in rewards (one step of 1 to 5 is
    .5).
    """
    bias_interval: tuple[float, float]
    """95 % interval of the bias, in rewards."""
    noise: float
    """Standard deviation of single ratings about quality and bias, in rewards."""
    n_marks: int
    n_shared: int
    """Ratings of answers that others rated too; only these separate bias from quality."""

    @property
    def words(self) -> str:
        """The profile in one sentence."""
        low, high = self.bias_interval
        return (
            f"{self.user_id} ({self.kind}): {self.bias:+.2f} [{low:+.2f}, {high:+.2f}] against the average "
            f"rater, noise {self.noise:.2f}, {self.n_marks} ratings, {self.n_shared} of them shared"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterConsensus:
    """Consensus of raters on answers."""

    answers: Mapping[str, ConsensusReward]
    """Interaction → its reward; answers without a rating are missing."""
    raters: tuple[RaterProfile, ...]
    """Raters by number of ratings, most first."""


def rater_consensus(marks: Sequence[Rating]) -> RaterConsensus:
    """Return each answer's reward and each rater's bias and noise.

    The time is cubic in the number of raters of each connected group.

    Args:
        marks: Valid ratings: at most one of each user for each answer.

    Raises:
        ValueError: a user rated an answer twice.
    """
    if not marks:
        return RaterConsensus(answers={}, raters=())
    if len({(mark.interaction_id, mark.user_id) for mark in marks}) < len(marks):
        raise ValueError("`marks` must hold one mark of each user for each answer")
    names = sorted({mark.interaction_id for mark in marks})
    raters = sorted({_rater(mark) for mark in marks})
    row_of, column_of = ({key: k for k, key in enumerate(keys)} for keys in (names, raters))
    design = _Design(
        rows=np.array([row_of[mark.interaction_id] for mark in marks]),
        columns=np.array([column_of[_rater(mark)] for mark in marks]),
        rewards=np.array([mark.reward for mark in marks], dtype=np.float64),
        shape=(len(names), len(raters)),
    )
    fit = _fitted(design)
    n_by_answer = np.bincount(design.rows)
    n_by_rater = np.bincount(design.columns)
    n_shared = np.bincount(design.columns, weights=n_by_answer[design.rows] > 1)
    profiles = [
        RaterProfile(
            user_id=user_id,
            kind=kind,
            bias=(bias := float(fit.bias[k])),
            bias_interval=(
                bias - (half := Z_95 * math.sqrt(fit.bias_variance[k])),
                bias + half,
            ),
            noise=math.sqrt(fit.noise[k]),
            n_marks=int(n_by_rater[k]),
            n_shared=int(n_shared[k]),
        )
        for k, (user_id, kind) in enumerate(raters)
    ]
    return RaterConsensus(
        answers={
            name: ConsensusReward(
                reward=float(np.clip(fit.mean + fit.quality[k], -1.0, 1.0)),
                standard_error=math.sqrt(fit.reward_variance[k]),
            )
            for k, name in enumerate(names)
        },
        raters=tuple(
            sorted(profiles, key=lambda profile: (-profile.n_marks, profile.user_id, profile.kind))
        ),
    )


def _rater(mark: Rating) -> tuple[str, Literal["rating", "thumbs"]]:
    return mark.user_id, "thumbs" if mark.rating is None else "rating"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Design:
    """Ratings as numbers, (n_marks,) each."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    rewards: Floats
    shape: tuple[int, int]
    """Numbers of answers and raters."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Fit:
    """Posterior of (1) given variances."""

    mean: float
    quality: Floats  # (n_answers,)
    quality_variance: Floats
    reward_variance: Floats
    """Variance of mean + quality, (n_answers,)."""
    bias: Floats  # (n_raters,)
    bias_variance: Floats
    residuals: Floats  # (n_marks,)
    fitted_variance: Floats
    """Variance of mean + quality + bias of each rating, (n_marks,)."""
    noise: Floats  # (n_raters,)


def _fitted(design: _Design) -> _Fit:
    n_raters = design.shape[1]
    links = coo_array((np.ones_like(design.rewards), (design.rows, design.columns)), design.shape)
    _, group = connected_components(links.T @ links, directed=False)
    joined = np.flatnonzero(np.bincount(group) > 1)
    groups = [np.flatnonzero(group == k) for k in joined]
    quality, bias = PRIOR_QUALITY, PRIOR_BIAS
    noise = np.full(n_raters, PRIOR_NOISE)
    for _ in range(MOST_STEPS):
        fit = _posterior(design, groups, quality, bias, noise)
        before = np.concatenate([[quality, bias], noise])
        # (eq. 4) for answers, raters, all ratings, and the ratings of one rater
        quality = _variance(fit.quality, fit.quality_variance, quality, PRIOR_QUALITY)
        bias = _variance(fit.bias, fit.bias_variance, bias, PRIOR_BIAS)
        squares = np.bincount(design.columns, weights=fit.residuals**2, minlength=n_raters)
        free = np.clip(1.0 - fit.fitted_variance / noise[design.columns], 0.0, 1.0)
        dof = np.bincount(design.columns, weights=free, minlength=n_raters)
        pooled = (PRIOR_WEIGHT * PRIOR_NOISE + squares.sum()) / (PRIOR_WEIGHT + dof.sum())
        noise = np.maximum(LEAST, (NOISE_WEIGHT * pooled + squares) / (NOISE_WEIGHT + dof))
        after = np.concatenate([[quality, bias], noise])
        if np.all(np.abs(after - before) <= TOLERANCE * before):
            break
    return _posterior(design, groups, quality, bias, noise)


def _variance(effects: Floats, variances: Floats, now: float, prior: float) -> float:
    dof = np.clip(1.0 - variances / now, 0.0, 1.0).sum()
    variance = (PRIOR_WEIGHT * prior + (effects**2).sum()) / (PRIOR_WEIGHT + dof)
    return max(LEAST, float(variance))


def _posterior(
    design: _Design, groups: Sequence[NDArray[np.intp]], quality: float, bias: float, noise: Floats
) -> _Fit:
    rows, columns = design.rows, design.columns
    w = 1.0 / noise[columns]
    weights = csr_array((w, (rows, columns)), design.shape)
    d = np.bincount(rows, weights=w) + 1.0 / quality  # (eq. 2)
    share = csr_array((w / d[rows], (rows, columns)), design.shape)
    total = np.bincount(columns, weights=w) + 1.0 / bias
    # Effects that explain the rewards (first column) and a constant (second column), (n, 2).
    targets = np.stack([design.rewards, np.ones_like(w)], axis=1)
    plain = _sums(rows, w, targets) / d[:, None]
    right = _sums(columns, w, targets - plain[rows])
    # Raters that share no answer with others have 1 x 1 blocks. The others follow.
    own_precision = 1.0 / (total - np.bincount(columns, weights=w**2 / d[rows]))
    effect = right * own_precision[:, None]
    between = -w / d[rows] * own_precision[columns]
    spread = np.bincount(rows, weights=(w / d[rows]) ** 2 * own_precision[columns])
    for members in groups:
        part = weights[:, members]
        touched = np.flatnonzero(np.diff(part.indptr))
        loads = share[touched][:, members].toarray()
        precision = np.diag(total[members]) - part[touched].toarray().T @ loads
        factor = cho_factor(precision)
        effect[members] = cho_solve(factor, right[members])
        covariance = cho_solve(factor, np.eye(members.size))
        own_precision[members] = np.diag(covariance)
        crossed = loads @ covariance
        spread[touched] = (crossed * loads).sum(axis=1)
        is_member = np.isin(columns, members)
        between[is_member] = -crossed[
            np.searchsorted(touched, rows[is_member]), np.searchsorted(members, columns[is_member])
        ]
    answers = plain - share @ effect
    left = targets - answers[rows] - effect[columns]
    # Generalized least squares of mu: V^-1 y is w times the residuals of y after the effects.
    mean_variance = 1.0 / float(w @ left[:, 1])
    mean = float(w @ left[:, 0]) * mean_variance
    given_mean = 1.0 / d + spread
    cell_variance = given_mean[rows] + own_precision[columns] + 2.0 * between
    return _Fit(
        mean=mean,
        quality=answers[:, 0] - mean * answers[:, 1],
        quality_variance=given_mean + answers[:, 1] ** 2 * mean_variance,
        reward_variance=given_mean + (1.0 - answers[:, 1]) ** 2 * mean_variance,
        bias=effect[:, 0] - mean * effect[:, 1],
        bias_variance=own_precision + effect[:, 1] ** 2 * mean_variance,
        residuals=left[:, 0] - mean * left[:, 1],
        fitted_variance=cell_variance + left[:, 1] ** 2 * mean_variance,
        noise=noise,
    )


def _sums(groups: NDArray[np.intp], w: Floats, values: Floats) -> Floats:
    """Return the weighted sums of each column of values (n_marks, 2) by group, (n_groups, 2)."""
    return np.stack([np.bincount(groups, weights=w * column) for column in values.T], axis=1)
