"""Size of a run: its schedule, and the calls of its judges and agents."""

from typing import TYPE_CHECKING, Final

from convergence_core.config import Configuration
from convergence_core.records import Candidate, canonical_json
from convergence_core.search.schedule import Schedule
from tasks.metrics.judge.judge import call_count

if TYPE_CHECKING:
    from tasks.inputs.loader import Loaded

AGENT_CALLS: Final = 4
"""Two tools one after the other, or three, and the answer."""


def judge_calls(configuration: Configuration) -> int:
    """Return the calls of judges that one evaluation needs, retries left out.

    What a champion answers comes beside them, once for each case: see ``champions``.
    """
    return sum(call_count(metric) for metric in configuration.evaluation.judges.values())


def agent_calls(configuration: Configuration) -> int:
    """Return the calls of models that one run of an agent is counted with; how many it makes, it decides."""
    if configuration.api.kind != "agno":
        return 0
    return min(AGENT_CALLS, configuration.api.agent.max_model_calls)


def champions(configuration: Configuration) -> tuple[int, int]:
    """Return how many candidates pairwise judges compare with, and how many are not the defaults."""
    pairwise = [m for m in configuration.evaluation.judges.values() if m.mode == "pairwise"]
    written = {canonical_json(m.champion) for m in pairwise if isinstance(m.champion, dict)}
    n_apart = len(written)
    return n_apart + any(not isinstance(m.champion, dict) for m in pairwise), n_apart


def schedule_of(loaded: "Loaded", champion: Candidate | None = None) -> Schedule:
    """Return the plan of a run of this configuration, in numbers of cells.

    Args:
        loaded: the configuration with what it names.
        champion: who is in production; looked at in the end beside winner and defaults.
    """
    configuration = loaded.configuration
    n_champions, n_apart = champions(configuration)
    baseline = loaded.space.baseline()
    return Schedule(
        n_generations=configuration.optimization.evolution.generations,
        population_size=configuration.optimization.evolution.population_size,
        n_search_cases=len(loaded.search_cases),
        n_holdout_cases=len(loaded.holdout_cases),
        repeats=configuration.evaluation.repeats,
        deterministic=configuration.evaluation.deterministic,
        cases_per_candidate=configuration.evaluation.cases_per_candidate,
        max_calls=configuration.budget.max_calls,
        calls_per_cell=1 + judge_calls(configuration) + agent_calls(configuration),
        n_champions=n_champions,
        n_champions_apart=n_apart,
        has_baseline=baseline is not None,
        has_champion=champion is not None and champion.params != baseline,
    )
