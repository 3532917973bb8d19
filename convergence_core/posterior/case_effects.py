"""Mean rewards freed of the difficulty of the cases, with their errors.

    reward(i, j) = a_i + b_j + e_ij,    b_j ~ N(0, case variance),    e_ij ~ N(0, noise_i)         (1)
    theta_i = a_i + sum_j w_j b_j                                                                  (2)

Cases are random, candidates fixed: whatever prior candidates have comes later, from the space.
The posterior of all theta, the mean rewards over these very cases, is normal and of closed form
(Henderson's equations, absorbed, ``random_effects``), so candidates that were asked different cases
compare, and the errors of those that shared cases move together.

Where rewards lie in [0, 1] the noise of a cell may follow the binomial's shape,

    noise_i = factor p_i (1 - p_i)    instead of    noise_i = factor                               (3)

a candidate with nine of ten right is known better than one with five of ten. Whether it does is
decided by the likelihood of the residuals; where that says little, zeros and ones are taken for
binomial and other rewards are not.

Notation: M candidates, N cases, w_j the cases' shares in the mean; shape is p (1 - p) or 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convergence_core.posterior.evidence import Evidence
from convergence_core.posterior.random_effects import RandomEffectsFit, cell_weights

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
MIN_COIN_SHARE = 0.25
"""Of a coin's variance p (1 - p), what cases leave unexplained at least."""
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
    """Posterior means of b, (N,)."""
    case_variance: float
    """Of b."""
    noise: np.ndarray
    """Variance of one cell of each candidate as evidence of its theta, (M,)."""
    of_sample: np.ndarray
    """Variance by which noise moves the mean over all cases away from that over the cases seen, (M,)."""

    @classmethod
    def estimate(cls, evidence: Evidence) -> "CaseEffects":
        """Return the estimates from rewards of candidates on cases, at least one of each candidate.

        The shape of the noise is the more likely one.
        """
        if n_free_rewards(evidence) < MIN_DOF or evidence.count.shape[1] < 2:
            return cls.of_unknown_noise(evidence)
        log_likelihood, constant = cls.fit(evidence, binomial=False)
        if evidence.mean.min() < 0 or evidence.mean.max() > 1:
            return constant
        of_binomial, binomial = cls.fit(evidence, binomial=True)
        is_binomial = of_binomial - log_likelihood > (-MARGIN if evidence.binary else MARGIN)
        return binomial if is_binomial else constant

    @classmethod
    def fit(
        cls,
        evidence: Evidence,
        *,
        binomial: bool,
    ) -> tuple[float, "CaseEffects"]:
        """Return the log-likelihood of the residuals, and the estimates of the linear model.

        Variances are those of restricted likelihood.

        Args:
            evidence: the rewards.
            binomial: whether the shape of the noise is p (1 - p).
        """
        weight = cell_weights(evidence)
        cells = weight.sum(axis=1)
        shown = np.asarray((weight > 0).any(axis=0))
        n_free = n_free_rewards(evidence)
        least = least_factor(evidence, binomial=binomial)
        shape = np.ones(len(cells))
        plain = LinearFit.of(evidence, weight, 0.0).residual
        factor = case_variance = max(squares(evidence, plain, shape) / n_free, least)
        fit = LinearFit.of(evidence, weight / (factor * shape)[:, None], case_variance)
        for _ in range(N_ROUNDS):
            before = np.array([factor, case_variance])
            variance, dof = fit.cases.next_variance(case_variance, shown)
            case_variance = max(variance, MIN_VARIANCE)
            if binomial:
                shape = binomial_shape(fit.mean, cells)
            if binomial and evidence.binary:
                least = least_coin(case_variance, float(cells @ shape / cells.sum()))
            factor = max(squares(evidence, fit.residual, shape) / max(n_free - dof, 1.0), least)
            fit = LinearFit.of(evidence, weight / (factor * shape)[:, None], case_variance)
            if np.allclose(before, [factor, case_variance], rtol=TOLERANCE, atol=MIN_VARIANCE):
                break
        return cls.of_linear(fit, evidence, factor, shape, case_variance)

    @classmethod
    def of_linear(
        cls,
        fit: "LinearFit",
        evidence: Evidence,
        factor: float,
        shape: np.ndarray,
        case_variance: float,
    ) -> tuple[float, "CaseEffects"]:
        """Return the log-likelihood of the residuals, and the estimates of a fit of these variances."""
        noise = factor * shape  # (eq. 3)
        effects = cls(
            mean=fit.mean,
            errors=fit.cases.errors(fit.loading, 1.0 / fit.cases.total),
            is_measured=True,
            case_effect=fit.cases.effect,
            case_variance=case_variance,
            noise=noise,
            of_sample=noise * (fit.loading**2).sum(axis=1),
        )
        return _log_likelihood(evidence, fit.residual, factor, shape), effects

    @classmethod
    def of_unknown_noise(cls, evidence: Evidence) -> "CaseEffects":
        """Return plain means, whose errors are known up to a factor."""
        weight = cell_weights(evidence)
        cells = weight.sum(axis=1)
        return cls(
            mean=(weight * evidence.mean).sum(axis=1) / cells,
            errors=np.diag(1.0 / cells),
            is_measured=False,
            case_effect=np.zeros(evidence.count.shape[1]),
            case_variance=0.0,
            noise=np.ones(len(cells)),
            of_sample=np.ones(len(cells)),
        )

    def without_noise(self, evidence: Evidence) -> "CaseEffects":
        """Return the estimates of rewards that a case asked again would repeat.

        What candidate and case leave unexplained is a candidate's own then, and its error ends where
        all cases were asked, as that of a sample of a finite population does.
        """
        if not self.is_measured:
            return self
        noise_of_mean = self.noise / cell_weights(evidence).sum(axis=1)
        errors = self.errors + np.diag(self.of_sample - noise_of_mean)
        diagonal = np.diag_indices_from(errors)
        # Where every case has an answer, rounding may leave a variance just below 0.
        errors[diagonal] = np.maximum(errors[diagonal], 0.0)
        return replace(self, errors=errors)

    def alone(
        self, evidence: Evidence, rows: np.ndarray, count: np.ndarray, rewards: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return estimates of theta from some rewards alone, were b known, and variances, (n,).

        Args:
            evidence: what these estimates are of.
            rows: candidates, (n,).
            count: rewards on each case, at least one of each candidate, (n, N).
            rewards: their sums, (n, N).
        """
        n = count.sum(axis=1)
        of_cases = count @ self.case_effect / n - evidence.case_weight @ self.case_effect
        return rewards.sum(axis=1) / n - of_cases, self.noise[rows] / n


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LinearFit:
    """Effects of the linear model given the variances."""

    cases: RandomEffectsFit
    mean: np.ndarray
    """theta, (M,)."""
    residual: np.ndarray
    """Reward less a and b, 0 where nothing was seen, (M, N)."""
    loading: np.ndarray
    """How theta moves with b, (M, N)."""

    @classmethod
    def of(cls, evidence: Evidence, precision: np.ndarray, case_variance: float) -> "LinearFit":
        """Solve Henderson's equations with the candidates absorbed.

        Args:
            evidence: the rewards.
            precision: of each cell's mean, 0 where nothing was seen, (M, N).
            case_variance: of b; 0: there are no effects.
        """
        cases = RandomEffectsFit.solve(evidence.mean, precision, case_variance)
        loading = evidence.case_weight - cases.share
        residual = evidence.mean - cases.free[:, None] - cases.effect  # (eq. 1)
        return cls(
            cases=cases,
            mean=cases.plain + loading @ cases.effect,  # (eq. 2)
            residual=np.where(precision > 0, residual, 0.0),
            loading=loading,
        )


def n_free_rewards(evidence: Evidence) -> float:
    """Return the rewards beyond one per candidate."""
    return float(evidence.count.sum()) - len(evidence.count)


def binomial_shape(mean: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return p (1 - p), with p shrunk to the center a little, (M,).

    Args:
        mean: of the rewards, (M,).
        cells: plain cells behind each, (M,).
    """
    center = float(mean.mean())
    p = np.clip((mean * cells + center * N_PRIOR_CELLS) / (cells + N_PRIOR_CELLS), 0, 1)
    return np.asarray(np.maximum(p * (1 - p), EDGE), np.float64)


def squares(evidence: Evidence, residual: np.ndarray, shape: np.ndarray) -> float:
    """Return the sum of squared residuals over all rewards, each in units of its shape."""
    between = float((residual**2 * evidence.count / shape[:, None]).sum())
    if evidence.binary:
        of_repeats = (evidence.count * evidence.mean * (1.0 - evidence.mean)).sum(axis=1)  # (M,)
        return between + float((of_repeats / shape).sum())
    return between + evidence.repeat_sum / _repeats(evidence, shape)[1]


def _log_likelihood(
    evidence: Evidence, residual: np.ndarray, factor: float, shape: np.ndarray
) -> float:
    """Return the log-likelihood of residuals, (M, N), up to a constant."""
    if evidence.binary:
        log_shape = float((evidence.count.sum(axis=1) - 1.0) @ np.log(shape))
    else:
        n_repeats, shared = _repeats(evidence, shape)
        n_cells = (evidence.count > 0).sum(axis=1)  # (M,)
        log_shape = float((n_cells - 1.0) @ np.log(shape)) + n_repeats * math.log(shared)
    log_noise = n_free_rewards(evidence) * math.log(factor) + log_shape
    return -0.5 * (log_noise + squares(evidence, residual, shape) / factor)


def _repeats(evidence: Evidence, shape: np.ndarray) -> tuple[float, float]:
    """Return how many rewards repeat a cell, and their mean shape.

    Their squares are known summed over candidates only, so none can be given its own shape.
    """
    n_repeats = np.maximum(evidence.count - 1.0, 0.0).sum(axis=1)  # (M,)
    n = float(n_repeats.sum())
    return n, float(n_repeats @ shape) / n if n else 1.0


def least_coin(case_variance: float, coin: float) -> float:
    """Return the least noise of pass and fail, in units of p (1 - p).

    Over all cases the variance of pass and fail is p (1 - p), so what the cases do not take of it is
    noise, whatever residuals say: where many candidates nearly always fail, their shapes lie above
    p (1 - p), and the factor that fits them would leave all others too little.

    Args:
        case_variance: of b.
        coin: mean p (1 - p) of a cell.
    """
    return max(MIN_COIN_SHARE, 1.0 - case_variance / coin)


def least_factor(evidence: Evidence, *, binomial: bool) -> float:
    """Return the least noise, in units of shape: rewards of one kind prove little."""
    if not evidence.binary:
        return MIN_VARIANCE * max(1.0, float(np.square(evidence.mean).max()))
    if binomial:
        return MIN_COIN_SHARE
    n = float(evidence.count.sum())
    coin = (float((evidence.mean * evidence.count).sum()) + 0.5) / (n + 1.0)
    return MIN_COIN_SHARE * coin * (1.0 - coin)


def adjusted_means(
    cells: Sequence[tuple[str, str, float, int]],
    *,
    case_weights: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return candidate → mean of one metric over all cases seen (eq. 2), in the metric's unit.

    Easy cases give a candidate no advantage. Each mean lies within the range of the values.

    Args:
        cells: (candidate, case, mean over repeats, repeats), finite, each pair once.
        case_weights: case → positive weight; absent ones weigh 1.
    """
    if not cells:
        return {}
    names, case_ids, values, repeats = zip(*cells, strict=True)
    candidates = {name: i for i, name in enumerate(dict.fromkeys(names))}
    cases = {name: j for j, name in enumerate(dict.fromkeys(case_ids))}
    value = np.array(values, dtype=np.float64)
    center, spread = float(value.mean()), float(value.std()) or 1.0
    at = [candidates[name] for name in names], [cases[case] for case in case_ids]
    mean, count = np.zeros((2, len(candidates), len(cases)))
    mean[at], count[at] = (value - center) / spread, repeats
    share = np.array([(case_weights or {}).get(name, 1.0) for name in cases], dtype=np.float64)
    evidence = Evidence(
        ids=tuple(candidates),
        case_ids=tuple(cases),
        mean=mean,
        count=count,
        case_weight=share / share.sum(),
        binary=False,
        repeat_sum=0.0,
        repeat_dof=0,
        repeat_squares=np.zeros(len(candidates)),
    )
    effects = CaseEffects.of_unknown_noise(evidence)
    if n_free_rewards(evidence) >= 1:
        _, effects = CaseEffects.fit(evidence, binomial=False)
    # The additive model passes the range of a bounded metric; a mean of its values does not.
    means = np.clip(center + spread * effects.mean, value.min(), value.max()).tolist()
    return {name: means[i] for name, i in candidates.items()}
