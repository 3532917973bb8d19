"""Optimization: generation after generation, then a final test of the winner."""

from typing import Annotated

from prefect import flow, runtime, tags, unmapped
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import Field

from convergence_core.result import RunResult
from flows.generation import run_generation
from flows.sao import sao
from tasks.artifacts import log_generation, notices, show_result, show_start
from tasks.notify.system_events import emit_gate
from tasks.prefect_support.flow_runs import attended, attended_run, label_of_flow_run
from tasks.run.adoption import concluded_by
from tasks.run.approval import await_adoption
from tasks.run.conclusion import choose_finalists, conclude
from tasks.run.opener import Resume, open_run
from tasks.steps import evaluate


@flow(
    name="optimize",
    flow_run_name=label_of_flow_run,
    task_runner=ThreadPoolTaskRunner(max_workers=2),  # type: ignore[arg-type]  # its result type is invariant
)
def optimize(  # noqa: PLR0917 - parameters of the deployment
    config: str | None = None,
    run_id: str | None = None,
    seed: Annotated[int | None, Field(ge=0)] = None,
    generations: Annotated[int | None, Field(ge=1)] = None,
    max_calls: Annotated[int | None, Field(ge=1)] = None,
    max_usd: Annotated[float | None, Field(gt=0)] = None,
    resume: Resume = "auto",
) -> RunResult:
    """Optimize the configured system and return the result.

    Args:
        config: path of ``optimization.yaml``, relative to the worker's working directory.
        run_id: id of a run that this process has opened; by default a new run starts.
        seed: replaces ``optimization.seed``.
        generations: replaces ``optimization.evolution.generations``.
        max_calls: replaces ``budget.max_calls``.
        max_usd: replaces ``budget.max_usd``.
        resume: ``auto`` continues the system's latest run if it is unfinished and has the same
            settings; ``never`` starts a new one.
    """
    with attended():
        flow_run_id = runtime.flow_run.id
        concluded = concluded_by(config, run_id, flow_run_id)
        if concluded is not None:
            return await_adoption(*concluded)
        run = open_run(
            config,
            run_id,
            seed,
            generations,
            max_calls,
            max_usd,
            resume=resume,
            flow_run_id=flow_run_id,
            notices=notices,
        )
        with attended_run(run):
            show_start(run)
            while run.should_continue():
                with tags(*run.tags_of_generation()):
                    if run.is_due("sao"):
                        sao(run_id=run.run_id, generation=run.next_generation)
                    log_generation(run_generation(run.run_id, run.next_generation))
            finalists = choose_finalists(run)
            trials = evaluate.map(
                finalists, run_id=unmapped(run.run_id), generation=unmapped(None)
            ).result()
            result = conclude(run, trials)
            show_result(run, result)
        emit_gate(result)
        await_adoption(run.record, run.store.path)
        return result
