"""Prefect's automations as code: crash zombie runs, notify people.

The address of a notice is a secret, and stays where the worker's environment has it: the
automation starts the deployment ``notify/alerts`` with the text, which knows the address's variable by
name. So the server never learns it, and any server will do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.automations import Automation, EventTrigger, Posture
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState, RunDeployment

from deployments.nightly.plan import ZOMBIE_S, ZOMBIES
from tasks.notify.system_events import BUDGET, DRIFT, GATE, SHARE, resource_of
from tasks.prefect_support.heartbeats import BEAT

WARNED_SHARE = "80"
"""Percent of a limit at which people are notified."""
_QUIET = ("Completed", "Failed", "Cancelled", "Crashed", "Suspended", "Paused")
"""States of a flow run that gives no sign of life, a suspended one since it waits for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeAutomations:
    """The automations that notify people of one system."""

    wanted: tuple[Automation, ...]
    unwanted: tuple[str, ...]
    """Names of those that should not be there."""


def crash_zombies() -> Automation:
    """Return what crashes runs that gave a sign of life and then none: killed with their worker."""
    return Automation(
        name=ZOMBIES,
        description=f"A run that beat and then not for {ZOMBIE_S} s was killed with its worker.",
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
                "scheduled run, goes on where it was.",
            )
        ],
    )


def notices(
    system: str, suffix: str, *, watched: Sequence[UUID], alerts: UUID | None
) -> NoticeAutomations:
    """Return what notifies people: a gate passed, drift, a budget nearly spent, a failure.

    Args:
        system: its name.
        suffix: of its deployments' names; also of the automations'.
        watched: deployments whose failures count.
        alerts: deployment that notifies; ``None``: nobody is to be notified.
    """
    resource = {"prefect.resource.id": resource_of(system)}
    text = "{{ event.payload.text }}"
    failure = (
        "{{ flow.name }} of " + system + ": the flow run {{ flow_run.name }} ended as "
        "{{ flow_run.state.name }}. {{ flow_run.state.message }}"
    )
    what_to_trigger: dict[str, tuple[str, dict[str, Any]]] = {
        "a gate passed": (text, {"expect": {GATE}, "match": resource}),
        "drift": (text, {"expect": {DRIFT}, "match": resource}),
        "a budget nearly spent": (
            text,
            {"expect": {BUDGET}, "match": {**resource, SHARE: WARNED_SHARE}},
        ),
        "a failure": (
            failure,
            {
                "expect": {"prefect.flow-run.Failed", "prefect.flow-run.Crashed"},
                "match": {"prefect.resource.id": "prefect.flow-run.*"},
                # Of deployments alone: the generations of a failed night fail with it.
                "match_related": {
                    "prefect.resource.role": "deployment",
                    "prefect.resource.id": [f"prefect.deployment.{one}" for one in watched],
                },
            },
        ),
    }
    names = {what: f"convergence{suffix}: tell of {what}" for what in what_to_trigger}
    if alerts is None:
        return NoticeAutomations(wanted=(), unwanted=tuple(names.values()))
    wanted = (
        _automation(names[what], system, alerts, words, trigger)
        for what, (words, trigger) in what_to_trigger.items()
    )
    return NoticeAutomations(wanted=tuple(wanted), unwanted=())


def _automation(
    name: str, system: str, alerts: UUID, text: str, trigger: Mapping[str, Any]
) -> Automation:
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
