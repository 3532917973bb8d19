"""A candidate's mean reward by a two-way model, shrunk by empirical Bayes.

    reward(i, j) = a_i + b_j + e_ij,    theta_i = a_i + sum_j w_j b_j

Candidates seen on different cases compare, because what is easy about a case is taken out.
A candidate without parents starts at N(center, root); a child at N(parents' mean + shift, child),
so children of good parents are trusted sooner, and a lucky candidate with few cells is shrunk
towards what its kind usually scores. The numbers are learned by moments (``variances``).

Where all rewards are 0 or 1 the posterior is a Beta: with noise E[p(1-p)] and variance Var(p) of
a Beta prior, noise / variance is that prior's strength alpha + beta, so the linear estimate below
*is* the conjugate one (Diaconis & Ylvisaker 1979). Otherwise it is Gaussian.

Approximations: evidence of children does not flow back to their parents, and the posterior of a
seen child is independent of its parents' given the case effects.

Notation: M members, N cases; k_i cases seen, as an effective number where weights differ;
W_ij precision of a cell in units of 1/noise, rows summing to k_i; lambda_i = noise / prior
variance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.lapack import dtrtri

from convergence_core.archive import Archive
from convergence_core.posterior.beliefs import Beliefs
from convergence_core.posterior.evidence import Evidence, parent_rows
from convergence_core.posterior.variances import (
    GUESSED_ROOT_VARIANCE,
    Variances,
    center_edge,
    children_of,
    guess,
    noise_of,
    variance_of,
)
from convergence_core.records import Candidate

N_ROUNDS = 5
"""Rounds of estimating variances; more change no decision."""
MAX_EXACT_CASES = 512
"""Cases whose effects are solved for jointly; of more, correlations between them are dropped."""
CERTAIN = 1e9
"""Concentration of a Beta that is as good as a point."""
N_SWEEPS = 25
"""Gauss-Seidel-like sweeps for the effects of more cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseModel:
    """The surrogate; see the module's docstring."""

    variances: Variances | None = None
    """Known hyper-parameters; ``None``: learned from the evidence."""

    def fit(
        self,
        archive: Archive,
        *,
        case_ids: Sequence[str] | None = None,
        case_weights: Mapping[str, float] | None = None,
    ) -> "FittedCaseModel":
        """Learn from an archive; see ``Surrogate.fit``."""
        evidence = Evidence.gather(archive, case_ids=case_ids, case_weights=case_weights)
        variances = guess(evidence) if self.variances is None else self.variances
        if not evidence.ids:
            return FittedCaseModel(
                evidence=evidence, variances=variances, estimates=_nothing(evidence, variances)
            )
        estimates = _estimate(evidence, variances, None)
        if self.variances is None:
            for _ in range(N_ROUNDS):
                variances = _learn(evidence, variances, estimates)
                estimates = _estimate(evidence, variances, estimates)
        return FittedCaseModel(evidence=evidence, variances=variances, estimates=estimates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Effects given the variances."""

    k: np.ndarray
    """Effective number of cases, (M,)."""
    precision: np.ndarray
    """W, (M, N)."""
    raw: np.ndarray
    """Mean reward less case effects, without a prior, (M,)."""
    sweep: "_Sweep"
    """The candidates' effects."""
    center: float
    """Posterior mean of ``Variances.center``."""
    b: np.ndarray
    """Posterior means of case effects, (N,)."""
    root: np.ndarray
    """R with R R^T = covariance of case effects and center, (N + 1, N + 1), or their standard
    deviations, (N + 1,)."""
    b_dof: float
    """Degrees of freedom that the case effects took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCaseModel:
    """The model with its evidence."""

    evidence: Evidence
    variances: Variances
    estimates: Estimates

    def posterior(self, candidates: Sequence[Candidate]) -> Beliefs:
        """Return the joint posterior of these candidates, seen or unseen."""
        row = {candidate_id: i for i, candidate_id in enumerate(self.evidence.ids)}
        own = [row.get(candidate.candidate_id, -1) for candidate in candidates]
        rows = np.array(
            [
                (i, i) if i >= 0 else parent_rows(candidate.parent_ids, row)
                for i, candidate in zip(own, candidates, strict=True)
            ],
            dtype=np.intp,
        ).reshape(-1, 2)
        # Whoever has neither rewards nor parents stands on a base of its own: the center.
        rows[rows < 0] = len(self.evidence.ids)
        needed, position = np.unique(rows, return_inverse=True)
        est, var = self.estimates, self.variances
        is_seen = np.array(own, dtype=np.intp) >= 0
        has_parent = rows[:, 0] < len(self.evidence.ids)
        mean, strength, slope = self._bases()
        slope = slope[needed]
        loading = slope * est.root if est.root.ndim == 1 else slope @ est.root
        return Beliefs.build(
            ids=tuple(candidate.candidate_id for candidate in candidates),
            base_mean=mean[needed],
            base_variance=var.noise / strength[needed],
            base_concentration=self._concentration(strength[needed]),
            loading=loading,
            bases=position.reshape(-1, 2),
            shift=np.where(has_parent & ~is_seen, var.shift, 0.0),
            extra=np.where(is_seen, 0.0, np.where(has_parent, var.child, var.root)),
            dof=var.dof,
        )

    def _bases(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return means and strengths, (M + 1,), and slopes, (M + 1, N + 1); the last: the center.

        theta_i moves with case effect j by w_j - W_ij / (k_i + lambda_i), and with the center by
        g_i lambda_i / (k_i + lambda_i).
        """
        est, share = self.estimates, self.evidence.case_weight
        total = est.k + est.sweep.strength
        of_cases = share - est.precision / total[:, None]  # (M, N)
        of_center = est.sweep.pull * est.sweep.strength / total  # (M,)
        level = float(share @ est.b)
        is_free = float(self.variances.center_variance > 0)
        return (
            np.append(est.sweep.a, est.center) + level,
            np.append(total, np.inf),
            np.vstack([np.column_stack([of_cases, of_center]), np.append(share, is_free)]),
        )

    def _concentration(self, strength: np.ndarray) -> np.ndarray | None:
        """Return alpha + beta of the members' Betas, or ``None`` for Gaussians.

        Where cases explain a part of the binomial variance, a cell is worth more than one coin.
        """
        if not self.evidence.binary or not self.evidence.ids:
            return None
        var = self.variances
        kappa = var.noise / var.root
        center = min(
            max(self.estimates.center + float(self.evidence.case_weight @ self.estimates.b), 0), 1
        )
        coin = center * (1 - center) * kappa / (kappa + 1)
        return np.minimum(strength * max(1.0, coin / var.noise), CERTAIN)


def _estimate(evidence: Evidence, var: Variances, old: Estimates | None) -> Estimates:
    """Return the effects given the variances; ``old`` gives the first guess of the priors."""
    precision, k = _precision(evidence, var)
    mean = (precision * evidence.mean).sum(axis=1) / k  # (M,)
    sweep = _sweep(evidence, var, mean, k) if old is None else old.sweep
    center, b, root, b_dof = _common_effects(
        evidence,
        var,
        precision=precision,
        k=k,
        mean=mean,
        sweep=sweep,
        start=None if old is None else old.b,
    )
    if var.center_variance > 0 and evidence.binary:
        edge = center_edge(evidence)
        center = min(max(center, edge), 1 - edge)
    raw = mean - precision @ b / k
    return Estimates(
        k=k,
        precision=precision,
        raw=raw,
        sweep=_sweep(evidence, replace(var, center=center), raw, k),
        center=center,
        b=b,
        root=root,
        b_dof=b_dof,
    )


def _precision(evidence: Evidence, var: Variances) -> tuple[np.ndarray, np.ndarray]:
    """Return W, (M, N), and its row sums k, (M,)."""
    n_cases = len(evidence.case_ids)
    weight = (evidence.count > 0) * evidence.case_weight  # (M, N)
    total = weight.sum(axis=1)
    k = total**2 / (weight**2).sum(axis=1)  # Kish's effective number
    k = k / np.maximum(1.0 - var.lasting * np.minimum(k / n_cases, 1.0), 1e-3)
    return weight * (k / total)[:, None], k


def _common_effects(
    evidence: Evidence,
    var: Variances,
    *,
    precision: np.ndarray,
    k: np.ndarray,
    mean: np.ndarray,
    sweep: "_Sweep",
    start: np.ndarray | None,
) -> tuple[float, np.ndarray, np.ndarray, float]:
    """Return center, case effects, the root of their covariance, and the cases' dof.

    Candidates' effects are integrated out. Unknown are the N case effects and, as the last, how
    far the center lies from where it was.
    """
    n_cases, strength = len(evidence.case_ids), sweep.strength
    ridge = var.noise / var.case
    lever = strength * sweep.pull  # (M,)
    fitted = (k * mean + strength * sweep.prior) / (k + strength)  # (M,)
    target = np.append(
        (precision * evidence.mean).sum(axis=0) - precision.T @ fitted,
        float(lever @ (k * (mean - sweep.prior) / (k + strength))),
    )  # (N + 1,)
    of_center = var.noise / var.center_variance if var.center_variance > 0 else 1.0
    diagonal = np.append(
        precision.sum(axis=0) + ridge, float(lever @ sweep.pull) + of_center
    )  # (N + 1,)
    scaled = np.column_stack([precision, -lever]) / np.sqrt(k + strength)[:, None]
    if n_cases <= MAX_EXACT_CASES:
        matrix = np.diag(diagonal) - scaled.T @ scaled
        inverse_root, _ = dtrtri(np.linalg.cholesky(matrix), lower=1)
        effects = inverse_root.T @ (inverse_root @ target)
        variance = (inverse_root**2).sum(axis=0)
        root = np.sqrt(var.noise) * inverse_root.T
    else:
        # Damped Jacobi: the plain one need not converge where few candidates saw all cases.
        effects = np.append(np.zeros(n_cases) if start is None else start, 0.0)
        for _ in range(N_SWEEPS):
            left = target - diagonal * effects + scaled.T @ (scaled @ effects)
            effects = effects + 0.5 * left / diagonal
        variance = 1.0 / (diagonal - (scaled**2).sum(axis=0))
        root = np.sqrt(var.noise * variance)
    b_dof = n_cases - ridge * float(variance[:-1].sum())
    return var.center + float(effects[-1]), effects[:-1], root, b_dof


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweep:
    """Candidate effects given the case effects, by a pass from parents to children."""

    a: np.ndarray
    """Posterior means, (M,)."""
    prior: np.ndarray
    """Prior means, (M,)."""
    slope: np.ndarray
    """How much the prior mean moves with ``shift``: more than 1 for grandchildren, (M,)."""
    pull: np.ndarray
    """g: how much the prior mean moves with the center; 0 where the center is known, (M,)."""
    unknown: np.ndarray
    """Posterior variance of the parents' mean, (M,)."""
    strength: np.ndarray
    """lambda, (M,)."""


def _sweep(evidence: Evidence, var: Variances, raw: np.ndarray, k: np.ndarray) -> _Sweep:
    """Estimate candidates' effects; what is unknown of parents is unknown of their child."""
    n = len(raw)
    a, slope, unknown = np.zeros(n), np.zeros(n), np.zeros(n)
    pull = np.full(n, float(var.center_variance > 0))
    prior, strength = np.full(n, var.center), np.full(n, var.noise / var.root)
    for generation in np.unique(evidence.generation):
        rows = np.flatnonzero(evidence.generation == generation)
        children = rows[evidence.parents[rows, 0] >= 0]
        pair = evidence.parents[children]  # (n_children, 2)
        shrunk = strength / (k + strength)  # (M,)
        prior[children] = a[pair].mean(axis=1) + var.shift
        slope[children] = 1.0 + (shrunk * slope)[pair].mean(axis=1)
        pull[children] = (shrunk * pull)[pair].mean(axis=1)
        unknown[children] = var.noise * _of_pair(1.0 / (k + strength), pair)
        strength[children] = var.noise / (var.child + unknown[children])
        a[rows] = (k[rows] * raw[rows] + strength[rows] * prior[rows]) / (k[rows] + strength[rows])
    return _Sweep(a=a, prior=prior, slope=slope, pull=pull, unknown=unknown, strength=strength)


def _of_pair(variance: np.ndarray, pair: np.ndarray) -> np.ndarray:
    """Return the variance of each pair's mean; a pair of one and the same has that one's."""
    mean = variance[pair].mean(axis=1)
    return np.asarray(np.where(pair[:, 0] == pair[:, 1], mean, mean / 2), np.float64)


def _learn(evidence: Evidence, var: Variances, est: Estimates) -> Variances:
    """Return the variances that these effects suggest."""
    seen = evidence.count > 0
    adjusted = evidence.mean - est.b
    center = (seen * adjusted).sum(axis=1) / seen.sum(axis=1)  # (M,)
    noise, lasting, dof = noise_of(evidence, (adjusted - center[:, None])[seen], est.b_dof)
    spread = est.root**2 if est.root.ndim == 1 else (est.root**2).sum(axis=1)
    spread = spread[:-1]
    shown = seen.any(axis=0)
    case = float((est.b[shown] ** 2 + spread[shown]).mean())
    sampling = noise / est.k
    children = evidence.parents[:, 0] >= 0
    root = variance_of(est.raw[~children] - est.center, sampling[~children], GUESSED_ROOT_VARIANCE)
    shift, child = children_of(
        (est.raw - est.sweep.prior)[children],
        slope=est.sweep.slope[children],
        sampling=(sampling + est.sweep.unknown)[children],
        old=var,
    )
    return replace(
        var,
        center=est.center,
        root=root,
        shift=shift,
        child=child,
        case=max(case, 1e-9),
        noise=noise,
        lasting=lasting,
        dof=dof,
    )


def _nothing(evidence: Evidence, variances: Variances) -> Estimates:
    none, n_cases = np.zeros(0), len(evidence.case_ids)
    return Estimates(
        k=none,
        precision=np.zeros((0, n_cases)),
        raw=none,
        sweep=_Sweep(a=none, prior=none, slope=none, pull=none, unknown=none, strength=none),
        center=variances.center,
        b=np.zeros(n_cases),
        root=np.append(np.zeros(n_cases), np.sqrt(variances.center_variance)),
        b_dof=0.0,
    )
