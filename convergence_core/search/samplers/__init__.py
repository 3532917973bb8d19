"""Samplers: one per value of ``optimization.algorithm``."""

from collections.abc import Mapping

from convergence_core.config import Configuration
from convergence_core.posterior import SpaceModel
from convergence_core.posterior.space_model import LengthPrice
from convergence_core.search.evolution import Breeder
from convergence_core.search.goals import Goals
from convergence_core.search.racing import Rules
from convergence_core.search.sampler import Sampler
from convergence_core.search.samplers.evolution import EvolutionSampler, RandomSampler
from convergence_core.search.samplers.thompson import ThompsonSampler
from convergence_core.space import Space

RACING = ("thompson", "mab_evolution")
"""Algorithms that race candidates for cells; hypotheses steer only these."""

__all__ = ["RACING", "EvolutionSampler", "RandomSampler", "ThompsonSampler", "make_sampler"]


def make_sampler(
    cfg: Configuration,
    space: Space,
    *,
    case_weights: Mapping[str, float] | None = None,
    surrogate: SpaceModel | None = None,
) -> Sampler:
    """Return the sampler for ``optimization.algorithm``.

    Args:
        cfg: Configuration of the run.
        space: Search space of the run.
        case_weights: Case → weight in the mean reward; missing cases have weight 1.
        surrogate: Model of the rewards; ``None`` means that of the configuration.
    """
    surrogate = surrogate or SpaceModel(
        space=space, deterministic=cfg.evaluation.deterministic, price=LengthPrice.of(cfg)
    )
    per_candidate, goals = cfg.evaluation.cases_per_candidate, Goals.of(cfg)
    if cfg.optimization.algorithm == "random":
        return RandomSampler(space=space, cases_per_candidate=per_candidate, goals=goals)
    if cfg.optimization.algorithm == "evolution":
        evolution = cfg.optimization.evolution
        return EvolutionSampler(
            space=space,
            breeder=Breeder(
                space=space,
                mutation_rate=evolution.mutation_rate,
                crossover_rate=evolution.crossover_rate,
            ),
            elite_size=evolution.elite_size,
            cases_per_candidate=per_candidate,
            surrogate=surrogate,
            case_weights=case_weights or {},
            goals=goals,
        )
    bandit, breeds = cfg.optimization.mab, cfg.optimization.algorithm == "mab_evolution"
    return ThompsonSampler(
        name=cfg.optimization.algorithm,
        space=space,
        surrogate=surrogate,
        rules=Rules(breeds=breeds, confidence_level=bandit.confidence_level),
        exploration_rate=bandit.exploration_rate,
        cases_per_candidate=per_candidate,
        case_weights=case_weights or {},
        goals=goals,
    )
