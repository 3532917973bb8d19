"""Prefect tasks of a generation and of rounds of games.

There is one task run per candidate, never per call, since a task run takes milliseconds and a cell
microseconds. Prefect retries and caches nothing here: transient faults are retried call by call
under the run's limits, and the journal stores the answers.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from prefect import Task, runtime, task
from prefect.cache_policies import NO_CACHE

from convergence_core.events import GenerationFinished, GenerationStarted
from convergence_core.games.round_records import GamesReport
from convergence_core.records import Assignment, Trial
from convergence_core.search.sampler import Plan
from tasks.run import sao_rounds
from tasks.run.games_round import games_round_of
from tasks.run.publication import publish_generation
from tasks.run.run import StepResult, run_of
from tasks.secrets.process_redaction import redacted_errors

P = ParamSpec("P")
R = TypeVar("R")


def _step(name: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Return the decorator of a task that is never cached, and whose errors show no secret."""

    def decorated(function: Callable[P, R]) -> Task[P, R]:
        return task(task_run_name=name, cache_policy=NO_CACHE)(redacted_errors()(function))

    return decorated


@_step("think before generation {generation:02d}")
def think(run_id: str, generation: int) -> int:  # noqa: ARG001 - names the task run
    """Ask for the generation's hypothesis: forecasts of other candidates, and proposed settings.

    It is durable before any outcome. Faults of the model are stored with it as reasons.

    Returns:
        1, or 0 without a hypothesis.
    """
    return run_of(run_id).think("rlp")


@_step("write prompts before generation {generation:02d}")
def write_prompts(run_id: str, generation: int) -> int:  # noqa: ARG001 - names the task run
    """Write prompts before a generation; return how many keep all invariants.

    They become visible when the generation is saved. Faults of the model are stored as reasons of
    missing prompts.
    """
    return run_of(run_id).think("prompts")


@_step("prefer before generation {generation:02d}")
def prefer(run_id: str, generation: int) -> int:  # noqa: ARG001 - names the task run
    """Play the round of preferences before a generation; return the number of kept pairs.

    It becomes visible when the generation is saved. Faults of the model are errors with a reason,
    without rows.
    """
    return run_of(run_id).think("sao")


@_step("save round {generation:02d}")
def save_round(run_id: str, generation: int) -> None:  # noqa: ARG001 - names the task run
    """Publish a round that ran without an optimization.

    Raises:
        RunInterruptedError: the run received a stop request, so the round may be incomplete.
        StoreWriteError: the round is not visible.
    """
    sao_rounds.save_round(run_of(run_id), runtime.flow_run.id)


@_step("sample generation {generation:02d}")
def sample_candidates(run_id: str, generation: int) -> Plan:
    """Plan the generation: posterior samples choose among the bred candidates."""
    run = run_of(run_id)
    plan = run.ask()
    n_cells = run.n_cells_planned
    n_candidates = len(plan.assignments) + n_cells - plan.n_cells
    run.emit(GenerationStarted(generation=generation, n_candidates=n_candidates, n_cells=n_cells))
    return plan


@_step("look at the defaults first")
def look_first(run_id: str, generation: int) -> list[Trial]:  # noqa: ARG001 - names the task run
    """Evaluate the defaults before all others and return their trials.

    Empty after the first generation, or without defaults.
    """
    return run_of(run_id).look_first()


@_step("evaluate {assignment.label}")
def evaluate(assignment: Assignment, run_id: str, generation: int | None) -> Trial:
    """Evaluate all cells of one candidate concurrently, under the run's limits.

    Args:
        assignment: the candidate and its cells.
        run_id: id of the open run.
        generation: number of the generation; ``None`` for the final re-estimation.
    """
    return run_of(run_id).evaluate(assignment, generation)


@_step("score the thought of generation {generation:02d}")
def score_thought(run_id: str, generation: int, trials: list[Trial]) -> float | None:  # noqa: ARG001
    """Score the generation's hypothesis by its forecasts, and update weight and policy.

    Nothing is stored before the generation is saved.

    Returns:
        Its information gain in nats; ``None`` if nothing was scored.

    Raises:
        RunInterruptedError: the run received a stop request, so the trials may be incomplete.
    """
    run = run_of(run_id)
    run.check_stop()
    step = run.learn_of("rlp", trials)
    gain: float | None = None if step is None else step.tables["thoughts"][0]["information_gain"]  # type: ignore[assignment]  # a number
    return gain


@_step("learn from generation {generation:02d}")
def learn(run_id: str, generation: int, trials: list[Trial]) -> StepResult:  # noqa: ARG001
    """Update posterior, stopper and learners; nothing is stored before the save.

    Raises:
        RunInterruptedError: the run received a stop request, so the trials may be incomplete.
    """
    run = run_of(run_id)
    run.check_stop()
    return run.learn(trials)


@_step("save generation {generation:02d}")
def save_generation(
    run_id: str,
    generation: int,  # noqa: ARG001 - names the task run
    step: StepResult,
) -> GenerationFinished:
    """Publish the generation's tables, advance the run, and return its summary.

    Raises:
        StoreWriteError: the generation is not visible; resuming the run publishes it.
    """
    return publish_generation(run_of(run_id), step, runtime.flow_run.id)


@_step("plan the round")
def plan_games(run_id: str) -> list[str]:
    """Plan the plays of each game before the first play; return the ids of planned games."""
    opened = games_round_of(run_id)
    opened.plan()
    return [game.game for game in opened.planned]


@_step("play {game}")
def play_game(run_id: str, game: str) -> int:
    """Play a game its planned number of times; return the number of finished plays."""
    return games_round_of(run_id).play(game)


@_step("save the round")
def save_games(run_id: str) -> GamesReport:
    """Publish a round of games and return its report.

    Raises:
        StoreWriteError: the round is not visible; the next flow run continues it.
    """
    return games_round_of(run_id).finish()
