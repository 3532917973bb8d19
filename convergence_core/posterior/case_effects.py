"""From cells to candidates: mean rewards that compare, and the covariance of their errors.

    reward(i, j) = a_i + b_j + e_ij,    b_j ~ N(0, case variance),    e_ij ~ N(0, noise_i)
    theta_i = a_i + sum_j w_j b_j

Cases are random, candidates fixed: whatever prior candidates have comes later, from the space.
The posterior of all theta, the mean rewards over these very cases, is normal and of closed form
(Henderson's equations, absorbed), so candidates that were asked different cases compare, and the
errors of those that shared cases move together.

Where rewards lie in [0, 1] the noise of a cell may follow the binomial's p (1 - p): a candidate
with nine of ten right is known better than one with five of ten. Whether it does is decided by the
likelihood of the residuals; where that says little, zeros and ones are taken for binomial and
other rewards are not. Where pass and fail show that cases differ, they are read by ``item_response``.

Notation: M candidates, N cases, w_j the cases' shares in the mean.
"""

import math
from dataclasses import dataclass

import numpy as np

from convergence_core.posterior.evidence import Evidence
from convergence_core.posterior.item_response import ItemResponse
from convergence_core.posterior.random_effects import RandomEffectsFit, Residuals, cell_weights

N_ROUNDS = 20
"""Rounds of estimating variances at most."""
TOLERANCE = 0.01
"""Relative change of the variances at which the rounds end; less changes no decision."""
MIN_DOF = 10.0
"""Degrees of freedom from which on the noise counts as measured."""
EDGE = 0.02
"""Least p (1 - p): nothing that was asked a few times is known to be certain."""
N_PRIOR_CELLS = 4.0
"""Cells of average reward that a candidate's p is shrunk by."""
MIN_VARIANCE = 1e-8
LEAST_COIN_SHARE = 0.25
"""Of a coin's variance p(1-p), what cases leave unexplained at least."""
MARGIN = 2.0
"""Log-likelihood by which the noise that is less expected must be better."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CaseEffects:
    """Evidence per candidate."""

    mean: np.ndarray
    """Estimates of theta, (M,)."""
    errors: np.ndarray
    """Their covariance, (M, M); where ``is_measured`` is false, up to an unknown factor."""
    is_measured: bool
    """Whether cells told how large the errors are."""
    case_effect: np.ndarray
    """Posterior means of b; with ``items``, what they are worth to the median candidate, (N,)."""
    case_variance: float
    """Of b; with ``items`` in log-odds."""
    noise: np.ndarray
    """Variance of one cell of each candidate as evidence of its theta, (M,)."""
    rest: Residuals | None
    """``None``: the noise is not measured."""
    factor: float = 1.0
    """Noise in units of its shape: of p (1 - p), or of 1."""
    is_binomial: bool = False
    """Whether the noise follows p (1 - p)."""
    items: ItemResponse | None = None
    """What answers tell of abilities; ``None``: rewards are read as they are."""

    @classmethod
    def estimate(
        cls, evidence: Evidence, *, with_cases: bool = True, with_items: bool = True
    ) -> "CaseEffects":
        """Return the estimates.

        Args:
            evidence: rewards of candidates on cases.
            with_cases: ``False``: all cases are taken for equally hard.
            with_items: ``False``: pass and fail are read as other rewards are.
        """
        weight = cell_weights(evidence)
        cells = weight.sum(axis=1)
        n_free = float(evidence.count.sum()) - len(cells)
        if n_free < MIN_DOF or evidence.count.shape[1] < 2:
            mean = (weight * evidence.mean).sum(axis=1) / cells
            return cls(
                mean=mean,
                errors=np.diag(1.0 / cells),
                is_measured=False,
                case_effect=np.zeros(evidence.count.shape[1]),
                case_variance=0.0,
                noise=np.ones(len(cells)),
                rest=None,
            )
        items = ItemResponse.estimate(evidence) if with_cases and with_items else None
        if items is not None:
            return cls._of(items, evidence)
        fit, constant = _fit(evidence, weight, binomial=False, with_cases=with_cases)
        if evidence.mean.min() < 0 or evidence.mean.max() > 1:
            return constant
        binomial_fit, binomial = _fit(evidence, weight, binomial=True, with_cases=with_cases)
        is_binomial = binomial_fit - fit > (-MARGIN if evidence.binary else MARGIN)
        return binomial if is_binomial else constant

    def believing(
        self, evidence: Evidence, believed: np.ndarray, *, with_cases: bool = True
    ) -> "CaseEffects":
        """Return the estimates whose binomial noise is that of believed rewards.

        Constant noise owes nothing to rewards, and leaves the estimates as they are.

        Args:
            evidence: what these estimates are of.
            believed: mean rewards, in [0, 1], (M,).
            with_cases: as in ``estimate``.
        """
        if self.items is not None:
            return self._of(self.items.believing(believed), evidence)
        if not self.is_binomial:
            return self
        p = np.clip(believed, 0.0, 1.0)
        return _fit(
            evidence,
            cell_weights(evidence),
            binomial=True,
            with_cases=with_cases,
            start=_Start(np.maximum(p * (1.0 - p), EDGE), self.factor, self.case_variance),
        )[1]

    @classmethod
    def _of(cls, items: ItemResponse, evidence: Evidence) -> "CaseEffects":
        found = items.measure(evidence)
        return cls(
            mean=found.mean,
            errors=found.errors,
            is_measured=True,
            case_effect=found.case_effect,
            case_variance=items.variance,
            noise=found.noise,
            rest=found.rest,
            is_binomial=True,
            items=items,
        )

    def alone(
        self, evidence: Evidence, rows: np.ndarray, count: np.ndarray, rewards: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what some rewards alone say of theta, were b known: estimates and variances, (n,).

        Args:
            evidence: what these estimates are of.
            rows: candidates, (n,).
            count: rewards on each case, at least one of each candidate, (n, N).
            rewards: their sums, (n, N).
        """
        if self.items is not None:
            return self.items.alone(rows, count, rewards)
        n = count.sum(axis=1)
        of_cases = count @ self.case_effect / n - evidence.case_weight @ self.case_effect
        return rewards.sum(axis=1) / n - of_cases, self.noise[rows] / n


@dataclass(frozen=True, slots=True, eq=False)
class _Start:
    """Where a second estimate begins."""

    shape: np.ndarray
    """Of the noise, which stays as it is, (M,)."""
    factor: float
    case_variance: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Solution:
    """Effects given the variances."""

    cases: RandomEffectsFit
    mean: np.ndarray
    """theta, (M,)."""
    residual: np.ndarray
    """Reward less a and b, 0 where nothing was seen, (M, N)."""
    loading: np.ndarray
    """How theta moves with b, (M, N)."""

    @classmethod
    def of(cls, evidence: Evidence, precision: np.ndarray, case_variance: float) -> "_Solution":
        """Solve Henderson's equations with the candidates absorbed.

        Args:
            evidence: the rewards.
            precision: of each cell's mean, 0 where nothing was seen, (M, N).
            case_variance: of b; 0: there are no effects.
        """
        cases = RandomEffectsFit.solve(evidence.mean, precision, case_variance)
        loading = evidence.case_weight - cases.share
        residual = evidence.mean - cases.free[:, None] - cases.effect
        return cls(
            cases=cases,
            mean=cases.plain + loading @ cases.effect,
            residual=np.where(precision > 0, residual, 0.0),
            loading=loading,
        )


def _fit(
    evidence: Evidence,
    weight: np.ndarray,
    *,
    binomial: bool,
    with_cases: bool,
    start: _Start | None = None,
) -> tuple[float, CaseEffects]:
    """Return the log-likelihood of the residuals, and the estimates.

    Variances are those of restricted likelihood.
    """
    cells = weight.sum(axis=1)
    shown = np.asarray((weight > 0).any(axis=0))
    n_free = float(evidence.count.sum()) - len(cells)
    least = _least_factor(evidence, binomial=binomial)
    if start is None:
        shape = np.ones(len(cells))
        factor = max(
            _square(evidence, _Solution.of(evidence, weight, 0.0).residual, shape) / n_free, least
        )
        case_variance = factor if with_cases else 0.0
    else:
        shape, factor, case_variance = start.shape, start.factor, start.case_variance
    solution = _Solution.of(evidence, weight / (factor * shape)[:, None], case_variance)
    for _ in range(N_ROUNDS):
        before = np.array([factor, case_variance])
        dof = 0.0
        if with_cases:
            dof = solution.cases.dof(case_variance, shown)
            case_variance = max(solution.cases.new_variance(dof, shown), MIN_VARIANCE)
        if binomial and start is None:
            shape = _binomial_shape(solution.mean, cells)
        if binomial and evidence.binary:
            least = _least_coin(case_variance, float(cells @ shape / cells.sum()))
        square = _square(evidence, solution.residual, shape)
        factor = max(square / max(n_free - dof, 1.0), least)
        solution = _Solution.of(evidence, weight / (factor * shape)[:, None], case_variance)
        if np.allclose(before, [factor, case_variance], rtol=TOLERANCE, atol=MIN_VARIANCE):
            break
    log_noise = n_free * math.log(factor) + _log_shape(evidence, shape)
    fit = -0.5 * (log_noise + _square(evidence, solution.residual, shape) / factor)
    noise = factor * shape
    sd = np.sqrt(noise)[:, None]
    own = 1.0 / solution.cases.total
    return fit, CaseEffects(
        mean=solution.mean,
        errors=solution.cases.errors(solution.loading, own),
        is_measured=True,
        case_effect=solution.cases.effect,
        case_variance=case_variance,
        noise=noise,
        factor=factor,
        is_binomial=binomial,
        rest=Residuals(
            residual=solution.residual / sd,
            seen=evidence.count > 0,
            loading=solution.loading * sd,
            own=own,
        ),
    )


def _binomial_shape(mean: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return p (1 - p), with p drawn to the center a little, (M,)."""
    center = float(mean.mean())
    p = np.clip((mean * cells + center * N_PRIOR_CELLS) / (cells + N_PRIOR_CELLS), 0, 1)
    return np.asarray(np.maximum(p * (1 - p), EDGE), np.float64)


def _square(evidence: Evidence, residual: np.ndarray, shape: np.ndarray) -> float:
    """Return the sum of squared residuals over all rewards, each in units of its shape."""
    between = float((residual**2 * evidence.count / shape[:, None]).sum())
    if evidence.binary:
        of_repeats = (evidence.count * evidence.mean * (1.0 - evidence.mean)).sum(axis=1)  # (M,)
        return between + float((of_repeats / shape).sum())
    return between + evidence.repeat_sum / _repeats(evidence, shape)[1]


def _log_shape(evidence: Evidence, shape: np.ndarray) -> float:
    """Return the sum of log shapes over all rewards but one per candidate, which its mean took."""
    if evidence.binary:
        return float((evidence.count.sum(axis=1) - 1.0) @ np.log(shape))
    n_repeats, shared = _repeats(evidence, shape)
    n_cells = (evidence.count > 0).sum(axis=1)  # (M,)
    return float((n_cells - 1.0) @ np.log(shape)) + n_repeats * math.log(shared)


def _repeats(evidence: Evidence, shape: np.ndarray) -> tuple[float, float]:
    """Return how many rewards repeat a cell, and their mean shape.

    Their squares are known summed over candidates only, so none can be told its own shape.
    """
    n_repeats = np.maximum(evidence.count - 1.0, 0.0).sum(axis=1)  # (M,)
    n = float(n_repeats.sum())
    return n, float(n_repeats @ shape) / n if n else 1.0


def _least_coin(case_variance: float, coin: float) -> float:
    """Return the least noise of pass and fail, in units of p (1 - p).

    Over all cases the variance of pass and fail is p (1 - p), so what the cases do not take of it is
    noise, whatever residuals say: where many candidates nearly always fail, their shapes lie above
    p (1 - p), and the factor that fits them would leave all others too little.

    Args:
        case_variance: of b.
        coin: mean p (1 - p) of a cell.
    """
    return max(LEAST_COIN_SHARE, 1.0 - case_variance / coin)


def _least_factor(evidence: Evidence, *, binomial: bool) -> float:
    """Return the least noise, in units of shape: rewards of one kind prove little."""
    if not evidence.binary:
        return MIN_VARIANCE * max(1.0, float(np.square(evidence.mean).max()))
    if binomial:
        return LEAST_COIN_SHARE
    n = float(evidence.count.sum())
    coin = (float((evidence.mean * evidence.count).sum()) + 0.5) / (n + 1.0)
    return LEAST_COIN_SHARE * coin * (1.0 - coin)
