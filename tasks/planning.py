"""How large a run of a configuration is."""

from typing import TYPE_CHECKING

from convergence_core.config import Configuration
from convergence_core.schedule import Schedule
from tasks.judging.judge import call_count
from tasks.judging.making import judge_configs

if TYPE_CHECKING:
    from tasks.loading import Loaded


def judge_calls(configuration: Configuration) -> int:
    """Return the calls of judges that one evaluation needs, retries left out."""
    return sum(call_count(metric) for metric in judge_configs(configuration).values())


def schedule_of(loaded: "Loaded", *, has_champion: bool = False) -> Schedule:
    """Return the plan of a run of this configuration, in numbers of cells.

    Args:
        loaded: the configuration with what it names.
        has_champion: whether a champion is looked at beside winner and defaults in the end.
    """
    configuration = loaded.configuration
    return Schedule(
        n_generations=configuration.optimization.evolution.generations,
        population_size=configuration.optimization.evolution.population_size,
        n_search_cases=len(loaded.search_cases),
        n_holdout_cases=len(loaded.holdout_cases),
        repeats=configuration.evaluation.repeats,
        cases_per_candidate=configuration.evaluation.cases_per_candidate,
        max_calls=configuration.budget.max_calls,
        calls_per_cell=1 + judge_calls(configuration),
        has_baseline=loaded.space.baseline() is not None,
        has_champion=has_champion,
    )
