"""Checks of a store's roles for training that is due."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from convergence_core.result.number_text import plural
from tasks.inputs.loader import Loaded, load
from tasks.inputs.storage import bound_folder
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.in_flight import is_answering, seconds_since_request
from tasks.training.jobs import TrainingStep, never, no_report
from tasks.training.round import RoundReport, train_role, trained_roles
from tasks.training.round_settings import base_model

QUIET_S: Final = 10.0
"""Seconds without requests before a round may start."""
MAX_LOAD: Final = 0.75
"""Maximum load per processor over the last minute; above it, no round starts."""


def busy_reason(root: Path) -> str | None:
    """Return why no round may start now in a store's folder; ``None`` if one may."""
    if is_answering(root):
        return "a request is being answered"
    since = seconds_since_request(root)
    if since is not None and since < QUIET_S:
        return f"the last request ended {since:.0f} s ago, and {QUIET_S:g} s of quiet are required"
    n_processors = os.cpu_count() or 1
    load = os.getloadavg()[0] / n_processors
    if load > MAX_LOAD:
        return (
            f"the load is {load:.2f} per processor, over {plural(n_processors, 'processor')}, "
            f"and the limit is {MAX_LOAD:g}"
        )
    return None


def look_at_roles(
    loaded: Loaded,
    feedback: FeedbackStore,
    *,
    role: str | None = None,
    is_forced: bool = False,
    on_step: Callable[[str], Callable[[TrainingStep], None]] | None = None,
) -> list[RoundReport]:
    """Train each role that is due, one after the other; return their reports.

    Args:
        loaded: Configuration.
        feedback: Feedback in the configuration's store.
        role: Role to train; ``None`` means every role with ratings.
        is_forced: Whether to skip the waits for idleness and for ``min_ratings`` new ratings.
        on_step: Returns a role's listener to steps.

    Raises:
        ConfigurationError: the configuration names no model to train, or the model does not exist.
        StoreError: the store cannot be read or written.
    """
    base_model(loaded)
    reports: list[RoundReport] = []
    for trained_role in trained_roles(loaded, feedback) if role is None else (role,):
        busy = None if is_forced else busy_reason(feedback.root)
        if busy is not None:
            reports.append(RoundReport(role=trained_role, status="waiting", sentence=busy))
            continue
        should_pause = never if is_forced else (lambda: is_answering(feedback.root))
        reports.append(
            train_role(
                loaded,
                feedback,
                trained_role,
                is_forced=is_forced,
                should_pause=should_pause,
                on_step=no_report if on_step is None else on_step(trained_role),
            )
        )
    return reports


def look_at_store(config: Path, *, role: str | None, is_forced: bool) -> list[RoundReport]:
    """Train the roles that are due in a configuration's store; see ``look_at_roles``."""
    loaded = load(config)
    with FeedbackStore(bound_folder(loaded)) as feedback:
        return look_at_roles(loaded, feedback, role=role, is_forced=is_forced)
