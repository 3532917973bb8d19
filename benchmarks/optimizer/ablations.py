"""Engine with removable parts, one field per part; by default all are present.

``ablatable`` adds these fields to a product sampler, so that a setting such as
``ours:rules.narrows=False`` is a field like any other. With all parts, it searches like the product.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from convergence_core.evidence import Archive
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
from convergence_core.posterior.random_effects import cell_weights
from convergence_core.posterior.space_model import FittedSpaceModel, SpaceModel
from convergence_core.records import Json
from convergence_core.search.racing import Competitors, Rules
from convergence_core.search.sampler import AskRequest
from convergence_core.search.samplers import ThompsonSampler

NEVER = 10**9
"""Threshold that no generation's slots reach."""


class EqualCases(CaseEffects):
    """Linear model with equally hard cases: the case variance is 0."""

    __slots__ = ()

    @classmethod
    def fit(
        cls,
        evidence: Evidence,
        *,
        binomial: bool,
    ) -> tuple[float, CaseEffects]:
        """Return the residuals' log-likelihood and the estimates; see ``CaseEffects.fit``."""
        weight = cell_weights(evidence)
        cells, n_free = weight.sum(axis=1), n_free_rewards(evidence)
        least = least_factor(evidence, binomial=binomial)
        shape, fit = np.ones(len(cells)), LinearFit.of(evidence, weight, 0.0)
        factor = max(squares(evidence, fit.residual, shape) / n_free, least)
        fit = LinearFit.of(evidence, weight / (factor * shape)[:, None], 0.0)
        for _ in range(N_ROUNDS):
            before = factor
            if binomial:
                shape = binomial_shape(fit.mean, cells)
            if binomial and evidence.binary:
                least = least_coin(0.0, float(cells @ shape / cells.sum()))
            factor = max(squares(evidence, fit.residual, shape) / max(n_free, 1.0), least)
            fit = LinearFit.of(evidence, weight / (factor * shape)[:, None], 0.0)
            if np.allclose(before, factor, rtol=TOLERANCE, atol=1e-8):
                break
        return cls.of_linear(fit, evidence, factor, shape, 0.0)


@dataclass(frozen=True, kw_only=True)
class AblatableModel(SpaceModel):
    """Surrogate with removable parts."""

    case_effects: bool = True
    """``False`` treats all cases as equally hard."""

    def estimate_effects(self, evidence: Evidence) -> CaseEffects:
        """Return the evidence per candidate."""
        return (CaseEffects if self.case_effects else EqualCases).estimate(evidence)


@dataclass(frozen=True, kw_only=True)
class AblatableRules(Rules):
    """Rules with removable parts."""

    draws: bool = True
    """``False`` gives slots to the highest posterior means."""
    narrows: bool = True
    """``False`` keeps posterior draws in the end game of large generations."""

    def __post_init__(self) -> None:
        """Set the threshold of sequential halving."""
        if not self.narrows:
            object.__setattr__(self, "halving_from", NEVER)


@dataclass(frozen=True, eq=False)
class AblatableCompetitors(Competitors):
    """Competitors under rules with removable parts."""

    def draws(
        self,
        known: np.ndarray,
        new: np.ndarray,
        rng: np.random.Generator,
        n: int,
        process: GaussianProcess | None = None,
    ) -> np.ndarray:
        """Return n joint draws of candidates' values, or their means."""
        assert isinstance(self.rules, AblatableRules)
        if self.rules.draws:
            return Competitors.draws(self, known, new, rng, n, process)
        genes = np.concatenate([self.genes[known], new])
        rows = np.concatenate([self.rows[known], np.full(len(new), -1, dtype=np.intp)])
        return np.tile(self.posterior_at(genes, rows).marginals[0], (n, 1))


@dataclass(frozen=True, kw_only=True)
class AblatableSampler(ThompsonSampler):
    """Sampler with removable parts."""

    races: bool = True
    """``False`` evaluates all cells of a new candidate in one slot."""

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
            found.rules, found.encoding, found.archive, found.fitted, found.goals
        )

    def chunk(self, request: AskRequest, worth_the_prior: float | None = None) -> int:
        """Return the cases of one slot."""
        if self.races or self.cases_per_candidate:
            return ThompsonSampler.chunk(self, request, worth_the_prior)
        return max(1, min(len(request.case_ids), request.n_cells // request.n_candidates))


def ablatable(sampler: Any) -> Any:
    """Return a racing sampler with removable parts; return others unchanged."""
    if not isinstance(sampler, ThompsonSampler):
        return sampler
    parts = _fields(sampler)
    parts["surrogate"] = ablatable_model(sampler.surrogate)
    parts["rules"] = AblatableRules(**_fields(sampler.rules))
    return AblatableSampler(**parts)


def ablatable_model(model: SpaceModel) -> AblatableModel:
    """Return a surrogate with removable parts."""
    return AblatableModel(**_fields(model))


def _fields(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value) if f.init}
