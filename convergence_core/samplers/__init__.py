"""The registry of samplers: one per value of ``optimization.algorithm``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from convergence_core.config import Configuration
from convergence_core.evolution import Breeder, Style
from convergence_core.posterior import CaseModel, Surrogate
from convergence_core.sampler import Sampler
from convergence_core.samplers.evolution import EvolutionSampler
from convergence_core.samplers.racing import RacingSampler
from convergence_core.samplers.uniform import RandomSampler
from convergence_core.space import Space

__all__ = [
    "SAMPLERS",
    "EvolutionSampler",
    "RacingSampler",
    "RandomSampler",
    "make_sampler",
]


@dataclass(frozen=True, slots=True)
class Belief:
    """How evidence is read."""

    surrogate: Surrogate
    case_weights: Mapping[str, float]


def _breeder(cfg: Configuration, space: Space, style: Style) -> Breeder:
    evolution = cfg.optimization.evolution
    return Breeder(
        space=space,
        mutation_rate=evolution.mutation_rate,
        crossover_rate=evolution.crossover_rate,
        tournament_size=evolution.tournament_size,
        style=style,
    )


def _random(cfg: Configuration, space: Space, belief: Belief) -> Sampler:  # noqa: ARG001 - one signature for all
    return RandomSampler(space=space, cases_per_candidate=cfg.evaluation.cases_per_candidate)


def _evolution(cfg: Configuration, space: Space, belief: Belief) -> Sampler:
    return EvolutionSampler(
        space=space,
        breeder=_breeder(cfg, space, "classic"),
        elite_size=cfg.optimization.evolution.elite_size,
        cases_per_candidate=cfg.evaluation.cases_per_candidate,
        surrogate=belief.surrogate,
        case_weights=belief.case_weights,
    )


def _racing(cfg: Configuration, space: Space, belief: Belief, *, breeds: bool) -> Sampler:
    return RacingSampler(
        name="mab_evolution" if breeds else "thompson",
        space=space,
        breeder=_breeder(cfg, space, "mixed") if breeds else None,
        elite_size=cfg.optimization.evolution.elite_size,
        exploration_rate=cfg.optimization.mab.exploration_rate,
        confidence_level=cfg.optimization.mab.confidence_level,
        cases_per_candidate=cfg.evaluation.cases_per_candidate,
        surrogate=belief.surrogate,
        case_weights=belief.case_weights,
    )


SAMPLERS: Mapping[str, Callable[[Configuration, Space, Belief], Sampler]] = {
    "random": _random,
    "evolution": _evolution,
    "thompson": partial(_racing, breeds=False),
    "mab_evolution": partial(_racing, breeds=True),
}
"""Makers by name."""


def make_sampler(
    cfg: Configuration,
    space: Space,
    *,
    case_weights: Mapping[str, float] | None = None,
    surrogate: Surrogate | None = None,
) -> Sampler:
    """Return the sampler that ``optimization.algorithm`` names.

    Args:
        cfg: the configuration.
        space: its search space.
        case_weights: case → weight in the mean reward; absent ones weigh 1.
        surrogate: how evidence becomes a posterior; one over the whole space goes here.
    """
    belief = Belief(surrogate or CaseModel(), case_weights or {})
    return SAMPLERS[cfg.optimization.algorithm](cfg, space, belief)
