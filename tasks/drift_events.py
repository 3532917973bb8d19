"""Alarms of drift as Prefect events, for automations that start a flow on them."""

from collections.abc import Sequence

from prefect.events import emit_event

from convergence_core.store.runtime_rows import StoredAlarm

EVENT = "convergence.drift"


def emit_alarms(alarms: Sequence[StoredAlarm]) -> None:
    """Emit one event for each alarm; its resource is the system."""
    for alarm in alarms:
        emit_event(
            event=EVENT,
            resource={
                "prefect.resource.id": f"convergence.system.{alarm.system}",
                "prefect.resource.name": alarm.system,
                "convergence.agent-type": alarm.agent_type,
            },
            payload={
                "arm_id": alarm.arm_id,
                "before": alarm.before,
                "after": alarm.after,
                "n": alarm.n,
                "created_us": alarm.created_us,
            },
        )
