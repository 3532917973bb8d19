"""Prefect's automations as code: crash zombie runs, notify users.

The address of a notice is a secret of the worker's environment. The automation starts the
deployment ``notify/alerts`` with the message, and that deployment knows only the name of the
address's variable. The server therefore never receives the address, and any server will do.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.automations import Automation, EventTrigger, Posture
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState, RunDeployment

from deployments.nightly.plan import ZOMBIE_S, ZOMBIES
from tasks.notify.system_events import BUDGET, DRIFT, GATE, SHARE, resource_of
from tasks.prefect_support.heartbeats import BEAT

_NAME = "convergence{}: notify about {}"
_FAILURE = "a failure"
_EVENTS: Mapping[str, tuple[str, dict[str, str]]] = {
    "a gate passed": (GATE, {}),
    "drift": (DRIFT, {}),
    "a budget nearly spent": (BUDGET, {SHARE: "80"}),  # percent of a limit
}
"""Subject of a notice → event and labels of its resource."""
_QUIET = ("Completed", "Failed", "Cancelled", "Crashed", "Suspended", "Paused")
"""States of a flow run without heartbeats; a suspended one waits for the user."""


def crash_zombies() -> Automation:
    """Return the automation that crashes runs whose heartbeats stopped with their worker."""
    return Automation(
        name=ZOMBIES,
        description=f"A run without a heartbeat for {ZOMBIE_S} s was killed with its worker.",
        trigger=EventTrigger(
            after={BEAT},
            expect={BEAT, *(f"prefect.flow-run.{state}" for state in _QUIET)},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=ZOMBIE_S),
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED,
                message=f"No sign of life for {ZOMBIE_S} s. `convergence resume`, or the next "
                "scheduled run, continues it.",
            )
        ],
    )


def notice_names(suffix: str) -> set[str]:
    """Return the names of the automations of ``notices``."""
    return {_NAME.format(suffix, event) for event in (*_EVENTS, _FAILURE)}


def notices(
    system: str, suffix: str, *, watched: Sequence[UUID], alerts: UUID
) -> list[Automation]:
    """Return the automations for notices: a gate passed, drift, a budget nearly spent, a failure.

    Args:
        system: name of the system.
        suffix: suffix of its deployments' and automations' names.
        watched: deployments whose failures are reported.
        alerts: deployment that sends the notices.
    """
    name = {event: _NAME.format(suffix, event) for event in (*_EVENTS, _FAILURE)}
    resource = {"prefect.resource.id": resource_of(system)}
    text = "{{ event.payload.text }}"
    on_events = [
        _automation(name[kind], system, alerts, text, expect={event}, match=resource | labels)
        for kind, (event, labels) in _EVENTS.items()
    ]
    failure = (
        "{{ flow.name }} of " + system + ": the flow run {{ flow_run.name }} ended as "
        "{{ flow_run.state.name }}. {{ flow_run.state.message }}"
    )
    on_failure = _automation(
        name[_FAILURE],
        system,
        alerts,
        failure,
        expect={"prefect.flow-run.Failed", "prefect.flow-run.Crashed"},
        match={"prefect.resource.id": "prefect.flow-run.*"},
        # Only of deployments, since the generations of a failed run fail with it.
        match_related={
            "prefect.resource.role": "deployment",
            "prefect.resource.id": [f"prefect.deployment.{deployment}" for deployment in watched],
        },
    )
    return [*on_events, on_failure]


def _automation(name: str, system: str, alerts: UUID, text: str, **trigger: Any) -> Automation:
    return Automation(
        name=name,
        description=f"Runs `notify/alerts` of {system}.",
        trigger=EventTrigger(
            posture=Posture.Reactive, threshold=1, within=timedelta(0), **trigger
        ),
        actions=[
            RunDeployment(
                source="selected",
                deployment_id=alerts,
                parameters={
                    "text": {"__prefect_kind": "jinja", "template": text},
                    "event": {"__prefect_kind": "jinja", "template": "{{ event.event }}"},
                    "system": system,
                },
            )
        ],
    )
