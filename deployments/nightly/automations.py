"""Prefect's automations as code: crash what died, tell people what happened.

An address to tell people at is a secret, and stays where the worker's environment has it: the
automation starts the deployment ``notify/alerts`` with the text, which knows the address's variable by
name. So the server never learns it, and any server will do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from deployments.nightly.plan import HEARTBEAT_S

if TYPE_CHECKING:
    from prefect.automations import Automation

ZOMBIE_S = 3 * HEARTBEAT_S
"""Without a sign of life for so long, a run that gave one counts as crashed."""
GHOSTS = "convergence: crash runs that give no sign of life"
WARNED_SHARE = "80"
"""Percent of a limit at which people are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notices:
    """The automations that tell people of one system."""

    wanted: tuple["Automation", ...]
    unwanted: tuple[str, ...]
    """Names of those that should not be there."""


def ghosts() -> "Automation":
    """Return what crashes runs that gave a sign of life and then none: killed with their worker.

    A suspended run gives none, either: it waits for a person.
    """
    from prefect.automations import (  # noqa: PLC0415 - takes seconds
        Automation,
        EventTrigger,
        Posture,
    )
    from prefect.client.schemas.objects import StateType  # noqa: PLC0415 - as above
    from prefect.events.actions import ChangeFlowRunState  # noqa: PLC0415 - as above

    quiet = ("Completed", "Failed", "Cancelled", "Crashed", "Suspended", "Paused")
    beat = "prefect.flow-run.heartbeat"
    return Automation(
        name=GHOSTS,
        description=f"A run that beat and then not for {ZOMBIE_S} s was killed with its worker.",
        trigger=EventTrigger(
            after={beat},
            expect={beat, *(f"prefect.flow-run.{state}" for state in quiet)},
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


def notices(system: str, suffix: str, *, watched: Sequence[UUID], teller: UUID | None) -> Notices:
    """Return what tells people of a system: a gate passed, drift, budget nearly spent, a failure.

    Args:
        system: its name.
        suffix: of its deployments' names; also of the automations'.
        watched: deployments whose failures are told.
        teller: deployment that tells; ``None``: nobody is to be told.
    """
    from tasks.notify.system_events import BUDGET, DRIFT, GATE, SHARE  # noqa: PLC0415 - brings Prefect

    names = {
        what: f"convergence{suffix}: tell of {what}"
        for what in ("a gate passed", "drift", "a budget nearly spent", "a failure")
    }
    if teller is None:
        return Notices(wanted=(), unwanted=tuple(names.values()))
    wanted = (
        _on_event(names["a gate passed"], system, teller, GATE),
        _on_event(names["drift"], system, teller, DRIFT),
        _on_event(names["a budget nearly spent"], system, teller, BUDGET, {SHARE: WARNED_SHARE}),
        _on_failure(names["a failure"], system, teller, watched),
    )
    return Notices(wanted=wanted, unwanted=())


def _on_event(
    name: str, system: str, teller: UUID, event: str, labels: dict[str, str] | None = None
) -> "Automation":
    from tasks.notify.system_events import resource_of  # noqa: PLC0415 - brings Prefect

    match = {"prefect.resource.id": resource_of(system), **(labels or {})}
    return _automation(name, system, teller, "{{ event.payload.text }}", {event}, match, {})


def _on_failure(name: str, system: str, teller: UUID, watched: Sequence[UUID]) -> "Automation":
    text = (
        "{{ flow.name }} of " + system + ": the flow run {{ flow_run.name }} ended as "
        "{{ flow_run.state.name }}. {{ flow_run.state.message }}"
    )
    # Of deployments alone: the generations of a failed night fail with it.
    related = {
        "prefect.resource.role": "deployment",
        "prefect.resource.id": [f"prefect.deployment.{one}" for one in watched],
    }
    expect = {"prefect.flow-run.Failed", "prefect.flow-run.Crashed"}
    match = {"prefect.resource.id": "prefect.flow-run.*"}
    return _automation(name, system, teller, text, expect, match, related)


def _automation(  # noqa: PLR0917 - called twice, above
    name: str,
    system: str,
    teller: UUID,
    text: str,
    expect: set[str],
    match: dict[str, Any],
    related: dict[str, Any],
) -> "Automation":
    from prefect.automations import (  # noqa: PLC0415 - takes seconds
        Automation,
        EventTrigger,
        Posture,
    )
    from prefect.events.actions import RunDeployment  # noqa: PLC0415 - as above

    return Automation(
        name=name,
        description=f"Runs `notify/alerts` of {system}.",
        trigger=EventTrigger(
            expect=expect,
            match=match,
            match_related=related,
            posture=Posture.Reactive,
            threshold=1,
            within=timedelta(0),
        ),
        actions=[
            RunDeployment(
                source="selected",
                deployment_id=teller,
                parameters={
                    "text": {"__prefect_kind": "jinja", "template": text},
                    "event": {"__prefect_kind": "jinja", "template": "{{ event.event }}"},
                    "system": system,
                },
            )
        ],
    )
