"""The engine with parts left out, each by a field; by default every part is in.

``ablatable`` turns a sampler of the product into one with these fields, so that a setting such as
``ours:rules.narrows=False`` is a field like any other. With every part in it searches as the product.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from convergence_core.evidence.archive import Archive
from convergence_core.posterior.case_effects import (
    N_ROUNDS,
    TOLERANCE,
    CaseEffects,
    LinearFit,
    binomial_shape,
    least_coin,
    least_factor,
    n_free_rewards,
    squares,
)
from convergence_core.posterior.evidence import Evidence
from convergence_core.posterior.gaussian_process import GaussianProcess
from convergence_core.posterior.kernel import Distances, Kernel
from convergence_core.posterior.random_effects import cell_weights
from convergence_core.posterior.shared_noise import SharedNoise
from convergence_core.posterior.space_model import (
    N_LINEARIZATIONS,
    FittedSpaceModel,
    SpaceModel,
)
from convergence_core.records import Json
from convergence_core.search.racing import Competitors, Rules
from convergence_core.search.sampler import AskRequest
from convergence_core.search.samplers import ThompsonSampler
from convergence_core.space.arrays import Points

NEVER = 10**9
"""Slots of no generation."""
MANY_VALUES = 15
"""With more values of one choice than this, every dimension may get an additive term."""
ADDITIVE_SHARE, SD_ADDITIVE = 0.3, 1.2
"""Median of all additive variances together, and log-sd of the prior of each."""


class AdditiveKernel(Kernel):
    """Kernel with a term sum_d s_d k_d beside the product; log s_d lie before the last parameter."""

    __slots__ = ()

    @classmethod
    def beside(cls, kernel: Kernel) -> "AdditiveKernel":
        """Return a kernel with one additive term for each dimension."""
        n = kernel.n_dims
        mean, sd = [np.log(ADDITIVE_SHARE / n)] * n, [SD_ADDITIVE] * n
        return cls(
            kernel.n_numbers,
            kernel.of_choices,
            np.concatenate([kernel.prior_mean[:-1], mean, kernel.prior_mean[-1:]]),
            np.concatenate([kernel.prior_sd[:-1], sd, kernel.prior_sd[-1:]]),
        )

    def _terms(self, log_params: np.ndarray, distances: Distances) -> list[np.ndarray]:
        """Return s_p prod_d k_d and the additive terms, (n, m) each."""
        scales = np.exp(log_params[self.n_dims : -1])
        by_dimension = [*distances.numbers, *distances.choices]
        terms = [scales[0] * self.product(log_params, distances)]
        for d, distance in enumerate(by_dimension):
            terms.append(scales[1 + d] * self.correlation(log_params, distance, d))
        return terms

    def covariance(self, log_params: np.ndarray, distances: Distances) -> np.ndarray:
        """Return the covariance without candidates' own effects, (n, m)."""
        total, *terms = self._terms(log_params, distances)
        for term in terms:
            total += term
        return total

    def smooth_variance(self, log_params: np.ndarray) -> float:
        """Return the prior variance of a candidate without its own effect."""
        return float(np.exp(log_params[self.n_dims : -1]).sum())

    def gradient(
        self, log_params: np.ndarray, distances: Distances, outer: np.ndarray
    ) -> np.ndarray:
        """Return sum_ij outer_ij dK_ij / d log_params for a symmetric K."""
        of_product, *of_terms = (outer * term for term in self._terms(log_params, distances))
        slopes = []
        for d, of_term in enumerate(of_terms):
            slope = self.log_slope(log_params, distances, d)
            slopes.append(np.vdot(of_product, slope) + np.vdot(of_term, slope))
        sums = [term.sum() for term in (of_product, *of_terms)]
        own = math.exp(log_params[-1]) * float(np.trace(outer))
        return np.array([*slopes, *sums, own])


class EqualCases(CaseEffects):
    """Linear model in which all cases are equally hard: the case variance is 0."""

    __slots__ = ()

    @classmethod
    def fit(
        cls,
        evidence: Evidence,
        *,
        binomial: bool,
        start: tuple[np.ndarray, float, float] | None = None,
    ) -> tuple[float, CaseEffects]:
        """Return the log-likelihood of the residuals, and the estimates; see ``CaseEffects.fit``."""
        weight = cell_weights(evidence)
        cells, n_free = weight.sum(axis=1), n_free_rewards(evidence)
        least = least_factor(evidence, binomial=binomial)
        shape, factor = np.ones(len(cells)), 0.0
        if start is not None:
            shape, factor, _ = start
        fit = LinearFit.of(evidence, weight, 0.0)
        if start is None:
            factor = max(squares(evidence, fit.residual, shape) / n_free, least)
        fit = LinearFit.of(evidence, weight / (factor * shape)[:, None], 0.0)
        for _ in range(N_ROUNDS):
            before = factor
            if binomial and start is None:
                shape = binomial_shape(fit.mean, cells)
            if binomial and evidence.binary:
                least = least_coin(0.0, float(cells @ shape / cells.sum()))
            factor = max(squares(evidence, fit.residual, shape) / max(n_free, 1.0), least)
            fit = LinearFit.of(evidence, weight / (factor * shape)[:, None], 0.0)
            if np.allclose(before, factor, rtol=TOLERANCE, atol=1e-8):
                break
        return cls.of_linear(fit, evidence, factor, shape, 0.0, binomial=binomial)


@dataclass(frozen=True, kw_only=True)
class AblatableModel(SpaceModel):
    """Surrogate whose parts can be left out."""

    additive: bool = False
    """``True``: additive terms where a choice has many values."""
    case_effects: bool = True
    """``False``: all cases count as equally hard."""
    interaction: bool = True
    """``False``: similar candidates share no noise."""
    n_readings: int = N_LINEARIZATIONS
    """Linearizations of the evidence; 1: only where it was measured."""

    def estimate_effects(self, evidence: Evidence) -> CaseEffects:
        """Return the evidence per candidate."""
        if not self.case_effects:
            return EqualCases.estimate(evidence)
        return CaseEffects.estimate(evidence)

    def make_kernel(self, *, own_effect: bool) -> Kernel:
        """Return the kernel."""
        kernel = Kernel.of(self.encoding, own_effect=own_effect)
        has_many = any(len(distance) - 1 > MANY_VALUES for distance in kernel.of_choices)
        is_additive = self.additive and has_many and kernel.n_dims > 1
        return AdditiveKernel.beside(kernel) if is_additive else kernel

    def estimate_shared_noise(
        self, effects: CaseEffects, kernel: Kernel, points: Points
    ) -> SharedNoise | None:
        """Return the noise that similar candidates share."""
        if not self.interaction:
            return None
        return SharedNoise.estimate(effects, kernel, kernel.distances(points, points))

    @property
    def n_linearizations(self) -> int:
        """Linearizations of the evidence."""
        return self.n_readings


@dataclass(frozen=True, kw_only=True)
class AblatableRules(Rules):
    """Rules whose parts can be left out."""

    draws: bool = True
    """``False``: slots go to the highest posterior means."""
    narrows: bool = True
    """``False``: the end game goes by draws in large generations, too."""

    def __post_init__(self) -> None:
        """Set the threshold of sequential halving."""
        if not self.narrows:
            object.__setattr__(self, "halving_from", NEVER)


@dataclass(frozen=True, eq=False)
class AblatableCompetitors(Competitors):
    """Competitors by rules whose parts can be left out."""

    def draws(
        self,
        known: np.ndarray,
        new: np.ndarray,
        rng: np.random.Generator,
        n: int,
        process: GaussianProcess | None = None,
    ) -> np.ndarray:
        """Return n joint draws of what candidates are worth, or their means."""
        assert isinstance(self.rules, AblatableRules)
        if self.rules.draws:
            return Competitors.draws(self, known, new, rng, n, process)
        genes = np.concatenate([self.genes[known], new])
        rows = np.concatenate([self.rows[known], np.full(len(new), -1, dtype=np.intp)])
        return np.tile(self.posterior_at(genes, rows).marginals[0], (n, 1))


@dataclass(frozen=True, kw_only=True)
class AblatableSampler(ThompsonSampler):
    """Sampler whose parts can be left out."""

    races: bool = True
    """``False``: a new candidate is asked all its cells at once."""

    def competitors(
        self,
        archive: Archive,
        fitted: FittedSpaceModel,
        memory: Mapping[str, Json],
        *,
        n_steps: int,
    ) -> Competitors:
        """Return the competitors."""
        found = ThompsonSampler.competitors(self, archive, fitted, memory, n_steps=n_steps)
        return AblatableCompetitors(
            found.rules,
            found.encoding,
            found.archive,
            found.fitted,
            found.goals,
            mix=found.mix,
        )

    def chunk(self, request: AskRequest, worth_the_prior: float | None = None) -> int:
        """Return the cases of one slot."""
        if self.races or self.cases_per_candidate:
            return ThompsonSampler.chunk(self, request, worth_the_prior)
        return max(1, min(len(request.case_ids), request.n_cells // request.n_candidates))


def ablatable(sampler: Any) -> Any:
    """Return a racing sampler as one whose parts can be left out; others as they are."""
    if not isinstance(sampler, ThompsonSampler):
        return sampler
    parts = _fields(sampler)
    parts["surrogate"] = ablatable_model(sampler.surrogate)
    parts["rules"] = AblatableRules(**_fields(sampler.rules))
    return AblatableSampler(**parts)


def ablatable_model(model: SpaceModel) -> AblatableModel:
    """Return a surrogate as one whose parts can be left out."""
    return AblatableModel(**_fields(model))


def _fields(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value) if f.init}
