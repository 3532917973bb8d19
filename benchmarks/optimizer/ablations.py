"""The engine with parts left out, each by a field; by default every part is in.

``ablatable`` turns a sampler of the product into one with these fields, so that a setting such as
``ours:rules.narrows=False`` is a field like any other. With every part in it searches as the product.
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
"""Slots of no generation."""


class EqualCases(CaseEffects):
    """Linear model in which all cases are equally hard: the case variance is 0."""

    __slots__ = ()

    @classmethod
    def fit(
        cls,
        evidence: Evidence,
        *,
        binomial: bool,
    ) -> tuple[float, CaseEffects]:
        """Return the log-likelihood of the residuals, and the estimates; see ``CaseEffects.fit``."""
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
    """Surrogate whose parts can be left out."""

    case_effects: bool = True
    """``False``: all cases count as equally hard."""

    def estimate_effects(self, evidence: Evidence) -> CaseEffects:
        """Return the evidence per candidate."""
        return (CaseEffects if self.case_effects else EqualCases).estimate(evidence)


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
            found.rules, found.encoding, found.archive, found.fitted, found.goals
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
