"""Prefect events of an optimized system, which trigger automations.

The resource of each event is the system, ``convergence.system.NAME``; the payload's ``text`` is a
message for people. ``convergence deploy`` creates automations that forward it.
"""

import contextvars
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from prefect.events import emit_event

from convergence_core.caveats import CASES
from convergence_core.events import BudgetWarned, RunNotice
from convergence_core.records import fields_of
from convergence_core.result import RunResult, is_offline, verdict_of
from tasks.secrets.process_redaction import redacted_text
from tasks.store.runtime.rows import StoredAlarm

DRIFT: Final = "convergence.drift"
SAMPLE_RATIO: Final = "convergence.sample_ratio"
BUDGET: Final = "convergence.budget"
GATE: Final = "convergence.gate.passed"
SHARE: Final = "convergence.share"
"""Label of a budget event's resource: the crossed share in percent, e.g. ``80``."""


def resource_of(system: str) -> str:
    """Return a system's resource id in events."""
    return f"convergence.system.{system}"


def emit_alarms(alarms: Sequence[StoredAlarm]) -> None:
    """Emit one event for each alarm: ``convergence.drift`` or ``convergence.sample_ratio``."""
    for alarm in alarms:
        _emit(
            DRIFT if alarm.kind == "drift" else SAMPLE_RATIO,
            alarm.system,
            alarm.sentence,
            fields_of(alarm, "arm_id", "before", "after", "n", "created_us"),
            {"convergence.agent-type": alarm.agent_type},
        )


def emit_gate(result: RunResult) -> None:
    """Emit an event if the promotion gate promotes a run's candidate, except offline."""
    gate, winner = result.gate, result.winner
    if gate is None or winner is None or gate.decision != "promote" or is_offline(result):
        return
    verdict = verdict_of(result)
    command = "" if verdict.command is None else f" `{verdict.command}`"
    _emit(
        GATE,
        result.system,
        f"{result.label}, {winner.label}: {verdict.sentence} {CASES} {verdict.next_step}{command}",
        {"run_id": result.run_id, "label": result.label, "candidate_id": winner.candidate_id},
    )


def budget_events(
    system: str,
) -> Callable[[RunNotice], None]:
    """Return a thread-safe callback that emits an event for each crossed share of a limit.

    Notices come from the session's thread, which lacks this flow run's Prefect settings.
    """
    settings = contextvars.copy_context()

    def tell(notice: RunNotice) -> None:
        if isinstance(notice, BudgetWarned) and notice.share is not None:
            labels = {SHARE: f"{100 * notice.share:.0f}"}
            text = f"Budget of {system}: {notice.text}"
            settings.copy().run(_emit, BUDGET, system, text, {"share": notice.share}, labels)

    return tell


def _emit(
    event: str,
    system: str,
    text: str,
    payload: Mapping[str, Any],
    labels: Mapping[str, str] | None = None,
) -> None:
    emit_event(
        event=event,
        resource={
            "prefect.resource.id": resource_of(system),
            "prefect.resource.name": system,
            **(labels or {}),
        },
        payload={"text": redacted_text(text), **payload},
    )
