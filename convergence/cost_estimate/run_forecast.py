"""Forecast of a run's size."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.run.adoption import champion_now
from tasks.run.assembly import schedule_of

if TYPE_CHECKING:
    from tasks.inputs.loader import Loaded

RACING = ("thompson", "mab_evolution")
"""Algorithms that evaluate more candidates on fewer cases each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Size of a run. All numbers are upper bounds: a run may stop early."""

    n_generations: int
    n_candidates: int | None
    """Most candidates; ``None`` if only the evaluations limit them, because the algorithm races."""
    space_size: int | None
    """Number of possible candidates; ``None`` if uncountable."""
    n_search_cases: int
    n_holdout_cases: int
    n_search_cells: int
    n_final_cells: int
    """Cells of the re-estimation of winner, defaults and champion."""
    final_shortage: str | None
    """Why the final test has no cells, in words; ``None`` if it has some."""
    champion_calls: int
    """Most answers of the opponents of pairwise judges."""


def forecast(loaded: "Loaded") -> Forecast:
    """Return the size of a run of this configuration."""
    configuration = loaded.configuration
    evolution = configuration.optimization.evolution
    schedule = schedule_of(loaded, champion_now(loaded))
    size = loaded.space.size()
    races = configuration.optimization.algorithm in RACING
    n_candidates = None if races else evolution.generations * evolution.population_size
    n_search_cells = schedule.planned_cells()
    society = configuration.society
    grows = configuration.writes_prompts or (configuration.has_mutable_texts and society.prefers)
    if size is not None and not grows:
        n_candidates = size if n_candidates is None else min(n_candidates, size)
        per_candidate = schedule.n_search_cases * (schedule.repeats + races * schedule.n_again)
        n_search_cells = min(n_search_cells, n_candidates * per_candidate)
        n_candidates = min(n_candidates, n_search_cells)
    return Forecast(
        n_generations=evolution.generations,
        n_candidates=n_candidates,
        space_size=size,
        n_search_cases=schedule.n_search_cases,
        n_holdout_cases=schedule.n_holdout_cases,
        n_search_cells=n_search_cells,
        n_final_cells=schedule.final_quota().n_cells * schedule.n_subjects,
        final_shortage=schedule.final_shortage(),
        champion_calls=schedule.champion_calls,
    )
