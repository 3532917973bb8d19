"""Mean rewards corrected for the difficulty of cases, with their errors.

    reward(i, j) = a_i + b_j + e_ij,    b_j ~ N(0, case variance),    e_ij ~ N(0, noise_i)         (1)
    theta_i = a_i + sum_j w_j b_j                                                                  (2)

Cases are random, candidates fixed; the prior of candidates is applied later, by the surrogate. The
posterior of all theta, the mean rewards over exactly these cases, is normal and has a closed form
(Henderson's equations, absorbed, ``random_effects``). So candidates on different cases are
comparable, and the errors of candidates on the same cases are correlated.

If rewards lie in [0, 1], the noise of a cell may have the binomial's shape,

    noise_i = factor p_i (1 - p_i)    instead of    noise_i = factor                               (3)

so that a candidate with nine of ten right is known better than one with five of ten. The
likelihood of the residuals selects the shape. If it is inconclusive, zeros and ones are modelled
as binomial and other rewards as constant.

Notation: M candidates, N cases, w_j the cases' shares in the mean; shape is p (1 - p) or 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convergence_core.posterior.evidence import Evidence
from convergence_core.posterior.random_effects import RandomEffectsFit, cell_weights

N_ROUNDS = 20
"""Maximum iterations of variance estimation."""
TOLERANCE = 0.01
"""Relative change of the variances that ends the iterations; smaller ones change no decision."""
MIN_DOF = 10.0
"""Minimum degrees of freedom for the noise to count as measured."""
EDGE = 0.02
"""Minimum p (1 - p): a few rewards never establish certainty."""
N_PRIOR_CELLS = 4.0
"""Cells of average reward in the shrinkage of a candidate's p."""
MIN_VARIANCE = 1e-8
MIN_COIN_SHARE = 0.25
"""Minimum share of the Bernoulli variance p (1 - p) that cases leave unexplained."""
MARGIN = 2.0
"""Minimum log-likelihood advantage of the less expected noise shape."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CaseEffects:
    """Evidence per candidate."""

    mean: np.ndarray
    """Estimates of theta, (M,)."""
    errors: np.ndarray
    """Covariance of these estimates, (M, M); unless ``is_measured``, up to an unknown factor."""
    is_measured: bool
    """Whether the cells determine the size of the errors."""
    case_effect: np.ndarray
    """Posterior means of b, (N,)."""
    case_variance: float
    """Variance of b."""
    noise: np.ndarray
    """Variance of one cell as evidence of its candidate's theta, (M,)."""
    of_sample: np.ndarray
    """Variance that noise adds between the means over all cases and over the cases seen, (M,)."""

    @classmethod
    def estimate(cls, evidence: Evidence) -> "CaseEffects":
        """Return the estimates from rewards, at least one per candidate.

        The noise has the more likely shape.
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

        Variances maximize the restricted likelihood.

        Args:
            evidence: Rewards of candidates on cases.
            binomial: Whether the noise has the shape p (1 - p).
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
        """Return the log-likelihood of the residuals, and the estimates for these variances."""
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
        """Return plain means, with errors known up to a factor."""
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
        """Return the estimates if cases reproduce their rewards.

        The residual of a cell then belongs to the candidate. Its error vanishes once all cases are
        evaluated, as for a sample of a finite population.
        """
        if not self.is_measured:
            return self
        noise_of_mean = self.noise / cell_weights(evidence).sum(axis=1)
        errors = self.errors + np.diag(self.of_sample - noise_of_mean)
        diagonal = np.diag_indices_from(errors)
        # With an answer on every case, rounding may leave a variance just below 0.
        errors[diagonal] = np.maximum(errors[diagonal], 0.0)
        return replace(self, errors=errors)

    def alone(
        self, evidence: Evidence, rows: np.ndarray, count: np.ndarray, rewards: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return estimates of theta from some rewards alone, given b, and variances, (n,).

        Args:
            evidence: Evidence of these estimates.
            rows: Candidates, (n,).
            count: Rewards on each case, at least one per candidate, (n, N).
            rewards: Sums of these rewards, (n, N).
        """
        n = count.sum(axis=1)
        of_cases = count @ self.case_effect / n - evidence.case_weight @ self.case_effect
        return rewards.sum(axis=1) / n - of_cases, self.noise[rows] / n


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LinearFit:
    """Effects of the linear model for given variances."""

    cases: RandomEffectsFit
    mean: np.ndarray
    """theta, (M,)."""
    residual: np.ndarray
    """Reward minus a and b, 0 for unseen cells, (M, N)."""
    loading: np.ndarray
    """Coefficients of theta on b, (M, N)."""

    @classmethod
    def of(cls, evidence: Evidence, precision: np.ndarray, case_variance: float) -> "LinearFit":
        """Solve Henderson's equations with the candidates absorbed.

        Args:
            evidence: Rewards of candidates on cases.
            precision: Precision of each cell's mean, 0 for unseen cells, (M, N).
            case_variance: Variance of b; 0 means no case effects.
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
    """Return the number of rewards beyond one per candidate."""
    return float(evidence.count.sum()) - len(evidence.count)


def binomial_shape(mean: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return p (1 - p), with p slightly shrunk to the center, (M,).

    Args:
        mean: Mean rewards, (M,).
        cells: Effective cells per candidate, (M,).
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
    """Return the number of rewards that repeat a cell, and their mean shape.

    Their squares are known only as a sum over candidates, so they share one shape.
    """
    n_repeats = np.maximum(evidence.count - 1.0, 0.0).sum(axis=1)  # (M,)
    n = float(n_repeats.sum())
    return n, float(n_repeats @ shape) / n if n else 1.0


def least_coin(case_variance: float, coin: float) -> float:
    """Return the minimum noise of pass-fail rewards, in units of p (1 - p).

    Over all cases the variance of pass-fail rewards is p (1 - p), so the part that cases do not
    explain is noise, even if residuals are smaller. Where many candidates nearly always fail,
    their shapes exceed p (1 - p), and the fitted factor would leave too little noise for the
    others.

    Args:
        case_variance: Variance of b.
        coin: Mean p (1 - p) of a cell.
    """
    return max(MIN_COIN_SHARE, 1.0 - case_variance / coin)


def least_factor(evidence: Evidence, *, binomial: bool) -> float:
    """Return the minimum noise, in units of shape: equal rewards prove little."""
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
        case_weights: Case → positive weight; missing cases have weight 1.
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
    # The additive model can exceed the range of a bounded metric; a mean of its values cannot.
    means = np.clip(center + spread * effects.mean, value.min(), value.max()).tolist()
    return {name: means[i] for name, i in candidates.items()}
