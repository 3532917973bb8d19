"""How every sampler learns: the archive grows; memory holds the number of the generation."""

from collections.abc import Sequence

from convergence_core.objective.goals import Goals
from convergence_core.records import Trial
from convergence_core.search.sampler import SearchState


def generation_of(state: SearchState) -> int:
    """Return how many generations were told."""
    generation = state.memory.get("generation", 0)
    return generation if isinstance(generation, int) else 0


def tell(state: SearchState, trials: Sequence[Trial], goals: Goals | None = None) -> SearchState:
    """Return the state after a generation's trials; their order does not matter."""
    generation = generation_of(state)
    return SearchState(
        archive=state.archive.tell(trials, generation, None if goals is None else goals.measures),
        memory={**state.memory, "generation": generation + 1},
    )
