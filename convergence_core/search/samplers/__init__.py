"""The registry of samplers: one per value of ``optimization.algorithm``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from convergence_core.config import Configuration
from convergence_core.objective.goals import Goals
from convergence_core.posterior import SpaceModel
from convergence_core.search.evolution import Breeder
from convergence_core.search.racing import Rules
from convergence_core.search.sampler import Sampler
from convergence_core.search.samplers.evolution import EvolutionSampler
from convergence_core.search.samplers.thompson import ThompsonSampler
from convergence_core.search.samplers.uniform import RandomSampler
from convergence_core.space import Space

__all__ = [
    "SAMPLERS",
    "EvolutionSampler",
    "RandomSampler",
    "ThompsonSampler",
    "make_sampler",
    "make_surrogate",
]


@dataclass(frozen=True, slots=True)
class Belief:
    """How evidence is read."""

    surrogate: SpaceModel
    case_weights: Mapping[str, float]
    goals: Goals | None


def _breeder(cfg: Configuration, space: Space) -> Breeder:
    evolution = cfg.optimization.evolution
    return Breeder(
        space=space,
        mutation_rate=evolution.mutation_rate,
        crossover_rate=evolution.crossover_rate,
        tournament_size=evolution.tournament_size,
        selection=evolution.selection,
    )


def _random(cfg: Configuration, space: Space, belief: Belief) -> Sampler:
    return RandomSampler(
        space=space,
        cases_per_candidate=cfg.evaluation.cases_per_candidate,
        goals=belief.goals,
    )


def _evolution(cfg: Configuration, space: Space, belief: Belief) -> Sampler:
    return EvolutionSampler(
        space=space,
        breeder=_breeder(cfg, space),
        elite_size=cfg.optimization.evolution.elite_size,
        cases_per_candidate=cfg.evaluation.cases_per_candidate,
        surrogate=belief.surrogate,
        case_weights=belief.case_weights,
        goals=belief.goals,
    )


def _thompson(cfg: Configuration, space: Space, belief: Belief, *, breeds: bool) -> Sampler:
    return ThompsonSampler(
        name="mab_evolution" if breeds else "thompson",
        space=space,
        surrogate=belief.surrogate,
        rules=Rules(breeds=breeds, confidence_level=cfg.optimization.mab.confidence_level),
        exploration_rate=cfg.optimization.mab.exploration_rate,
        cases_per_candidate=cfg.evaluation.cases_per_candidate,
        case_weights=belief.case_weights,
        goals=belief.goals,
    )


SAMPLERS: Mapping[str, Callable[[Configuration, Space, Belief], Sampler]] = {
    "random": _random,
    "evolution": _evolution,
    "thompson": partial(_thompson, breeds=False),
    "mab_evolution": partial(_thompson, breeds=True),
}
"""Makers by name."""


def make_surrogate(space: Space, *, deterministic: bool = False) -> SpaceModel:
    """Return what is believed of candidates of a space, whatever samples them.

    Args:
        space: of the candidates.
        deterministic: ``evaluation.deterministic``.
    """
    return SpaceModel(space=space, deterministic=deterministic)


def make_sampler(
    cfg: Configuration,
    space: Space,
    *,
    case_weights: Mapping[str, float] | None = None,
    surrogate: SpaceModel | None = None,
) -> Sampler:
    """Return the sampler that ``optimization.algorithm`` names.

    Args:
        cfg: the configuration.
        space: its search space.
        case_weights: case → weight in the mean reward; absent ones weigh 1.
        surrogate: how evidence becomes a posterior; ``None``: ``make_surrogate``.
    """
    belief = Belief(
        surrogate or make_surrogate(space, deterministic=cfg.evaluation.deterministic),
        case_weights or {},
        Goals.of(cfg),
    )
    return SAMPLERS[cfg.optimization.algorithm](cfg, space, belief)
