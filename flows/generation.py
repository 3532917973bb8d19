"""One generation: think, sample, evaluate, score the thought, learn, save."""

from prefect import flow, unmapped
from prefect.task_runners import ThreadPoolTaskRunner

from convergence_core.events import GenerationFinished
from tasks.artifacts import show_progress, show_thought
from tasks.prefect_support.flow_runs import attended_generation, quoted
from tasks.run.run import run_of
from tasks.steps import (
    evaluate,
    learn,
    look_first,
    sample_candidates,
    save_generation,
    score_thought,
    think,
    write_prompts,
)

MAX_CANDIDATES_AT_ONCE = 256
"""Maximum threads that wait for candidates; only ``parallel_workers`` limits calls in flight."""


@flow(
    name="generation",
    flow_run_name="generation {generation:02d}",
    task_runner=ThreadPoolTaskRunner(max_workers=MAX_CANDIDATES_AT_ONCE),  # type: ignore[arg-type]  # its result type is invariant
    validate_parameters=False,
)
def run_generation(run_id: str, generation: int) -> GenerationFinished:
    """Run and commit one generation of an open run; return its summary.

    Args:
        run_id: id of the open run.
        generation: number of the generation, from 0.
    """
    with attended_generation(run_id):
        run = run_of(run_id)
        if run.is_due("prompts"):
            write_prompts(run_id, generation)
        has_thought = run.is_due("rlp") and bool(think(run_id, generation))
        plan = sample_candidates(run_id, generation)
        trials = look_first(run_id, generation)
        rest = run.remaining_assignments(plan, trials)
        futures = evaluate.map(rest, run_id=unmapped(run_id), generation=unmapped(generation))
        show_progress(run_id)  # takes a while, during which calls are in flight
        trials = [*trials, *futures.result()]
        while further := run.ask_further(trials):
            futures = evaluate.map(
                further, run_id=unmapped(run_id), generation=unmapped(generation)
            )
            trials += futures.result()
        if has_thought:
            score_thought(run_id, generation, quoted(trials))
            show_thought(run_id)
        learned = learn(run_id, generation, quoted(trials))
        return save_generation(run_id, generation, quoted(learned))
