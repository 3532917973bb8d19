"""Idleness of this machine, which background training waits for."""

import os
from dataclasses import dataclass
from pathlib import Path

from convergence_core.result.number_text import plural
from tasks.store.in_flight import is_answering, seconds_since_request


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRule:
    """When a round may begin."""

    quiet_s: float = 10.0
    """Seconds since the last request."""
    max_load: float = 0.75
    """Processes that want a processor, per processor, over the last minute."""


def busy_reason(root: Path, rule: IdleRule) -> str | None:
    """Return why no round may begin now; ``None``: one may.

    Args:
        root: folder of the store.
        rule: when one may.
    """
    if is_answering(root):
        return "a request is being answered"
    since = seconds_since_request(root)
    if since is not None and since < rule.quiet_s:
        return f"the last request ended {since:.0f} s ago, and {rule.quiet_s:g} s of quiet are asked for"
    n_processors = os.cpu_count() or 1
    load = os.getloadavg()[0] / n_processors
    if load > rule.max_load:
        return (
            f"the load is {load:.2f} per processor, over {plural(n_processors, 'processor')}, "
            f"and {rule.max_load:g} at most is asked for"
        )
    return None
