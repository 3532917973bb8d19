"""Approval of a promotion on Prefect's page, for which a flow run is suspended.

A suspended flow run holds no process, worker slot or lease. After the answer, Prefect restarts it
from its first line; ``concluded_by`` finds its finished work.
"""

from pathlib import Path
from uuid import UUID

from prefect import get_client, get_run_logger, runtime
from prefect.client.schemas.objects import StateType
from prefect.flow_runs import suspend_flow_run
from prefect.input import RunInput
from pydantic import Field

from convergence_core.caveats import CASES
from convergence_core.ports import RunRecord
from convergence_core.result import RunResult, verdict_of
from tasks.report.phrases import gate_evidence
from tasks.run.adoption import adopt, awaits_adoption, describe_obstacle, obstacle
from tasks.store.runtime.runtime_store import RuntimeStore

KEY = "adoption"


class Approval(RunInput):
    """Form on Prefect's page."""

    adopt: bool = Field(
        default=True, description="Make the candidate the champion, and activate it for requests."
    )


def await_adoption(record: RunRecord, path: Path) -> RunResult:
    """Ask for the adoption of a promoted candidate if it is required; return the result.

    Only the flow run of a deployment can wait; otherwise `convergence promote` adopts the
    candidate.

    Args:
        record: a finished run.
        path: its store.
    """
    result = RunResult.from_json(record.summary_json or "")
    if runtime.deployment.id is None or not awaits_adoption(record, result):
        return result
    logger = get_run_logger()
    _rename(result.label)
    with RuntimeStore(path) as store:
        why = obstacle(store, result)
    if why is not None:
        logger.info("%s", describe_obstacle(why, result))
        return result
    question = Approval.with_initial_data(description=_question(result), adopt=True)
    answer = suspend_flow_run(wait_for_input=question, key=KEY)
    with RuntimeStore(path) as store:
        why = obstacle(store, result)
        if why is not None:
            logger.info("%s", describe_obstacle(why, result))
        elif answer.adopt:
            adopt(store, result, reason=f"promoted from {result.label} on Prefect's page")
            logger.info("The candidate of %s is the champion now.", result.label)
        else:
            logger.info("The candidate of %s was not adopted.", result.label)
    return result


def release(flow_run_id: str) -> bool:
    """Resume a flow run that waits for an adoption already made; return whether it waited.

    Needs a Prefect server; raises its client's errors.
    """
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(flow_run_id))
        if run.state is None or run.state.type != StateType.PAUSED:
            return False
        client.resume_flow_run(run.id, run_input={"adopt": True})
    return True


def _rename(label: str) -> None:
    """Name the flow run after its run; Prefect resets the name at each start."""
    flow_run_id = runtime.flow_run.id
    if flow_run_id and runtime.flow_run.name != label:
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(flow_run_id), name=label)


def _question(result: RunResult) -> str:
    winner, gate = result.winner, result.gate
    assert winner is not None and gate is not None  # noqa: S101, PT018 - the gate has passed
    return (
        f"`{winner.label}`: {verdict_of(result).sentence} The {gate_evidence(gate)}. "
        f"{CASES}\n\nResume with *adopt* on: it "
        f"becomes the champion of {result.system}. With *adopt* off it does not. "
        f"`convergence promote {result.label}` does the same as the first."
    )
