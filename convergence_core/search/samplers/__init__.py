"""Registry of samplers: one per value of ``optimization.algorithm``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from convergence_core.config import Configuration
from convergence_core.posterior import SpaceModel
from convergence_core.posterior.length_price import LengthPrice
from convergence_core.search.evolution import Breeder
from convergence_core.search.goals import Goals
from convergence_core.search.racing import Rules
from convergence_core.search.sampler import Sampler
from convergence_core.search.samplers.evolution import EvolutionSampler, RandomSampler
from convergence_core.search.samplers.thompson import ThompsonSampler
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
class Learning:
    """Parts of a sampler that learn from evidence."""

    surrogate: SpaceModel
    case_weights: Mapping[str, float]
    goals: Goals | None


def _random(cfg: Configuration, space: Space, learning: Learning) -> Sampler:
    return RandomSampler(
        space=space,
        cases_per_candidate=cfg.evaluation.cases_per_candidate,
        goals=learning.goals,
    )


def _evolution(cfg: Configuration, space: Space, learning: Learning) -> Sampler:
    evolution = cfg.optimization.evolution
    return EvolutionSampler(
        space=space,
        breeder=Breeder(
            space=space,
            mutation_rate=evolution.mutation_rate,
            crossover_rate=evolution.crossover_rate,
            selection=evolution.selection,
        ),
        elite_size=evolution.elite_size,
        cases_per_candidate=cfg.evaluation.cases_per_candidate,
        surrogate=learning.surrogate,
        case_weights=learning.case_weights,
        goals=learning.goals,
    )


def _thompson(cfg: Configuration, space: Space, learning: Learning, *, breeds: bool) -> Sampler:
    return ThompsonSampler(
        name="mab_evolution" if breeds else "thompson",
        space=space,
        surrogate=learning.surrogate,
        rules=Rules(breeds=breeds, confidence_level=cfg.optimization.mab.confidence_level),
        exploration_rate=cfg.optimization.mab.exploration_rate,
        cases_per_candidate=cfg.evaluation.cases_per_candidate,
        case_weights=learning.case_weights,
        goals=learning.goals,
    )


SAMPLERS: Mapping[str, Callable[[Configuration, Space, Learning], Sampler]] = {
    "random": _random,
    "evolution": _evolution,
    "thompson": partial(_thompson, breeds=False),
    "mab_evolution": partial(_thompson, breeds=True),
}
"""Makers by name."""


def make_surrogate(
    space: Space, *, deterministic: bool = False, price: LengthPrice | None = None
) -> SpaceModel:
    """Return the surrogate of a space, whatever samples it.

    Args:
        space: of the candidates.
        deterministic: ``evaluation.deterministic``.
        price: of texts, ``LengthPrice.of`` the configuration; ``None`` if their length is free.
    """
    return SpaceModel(space=space, deterministic=deterministic, price=price)


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
        surrogate: of the rewards; ``None``: ``make_surrogate``.
    """
    learning = Learning(
        surrogate
        or make_surrogate(
            space, deterministic=cfg.evaluation.deterministic, price=LengthPrice.of(cfg)
        ),
        case_weights or {},
        Goals.of(cfg),
    )
    return SAMPLERS[cfg.optimization.algorithm](cfg, space, learning)
