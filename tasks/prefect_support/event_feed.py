"""Feed of events of Prefect's server: of task runs only what went wrong.

A client sends three events of each task run: Pending, Running, Completed. The recorder makes the task
run and its states of them, triggers of automations and live subscribers see them pass, and its event
persister writes each once more, for the feed. There they take half of what a task run costs the server,
and no one looks: the timeline of a run and the preview of an
automation leave events of task runs out. Prefect has a setting for the whole persister only, without
which flow runs would be missing, too.

``CONVERGENCE_TASK_RUN_EVENTS=all`` in the server's environment keeps them.
"""

import contextlib
import functools
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

VARIABLE: Final = "CONVERGENCE_TASK_RUN_EVENTS"
LEFT_OUT: Final = frozenset(
    f"prefect.task-run.{state}" for state in ("Pending", "Running", "Completed")
)
"""Of every other state, such as Failed, Crashed or AwaitingRetry, the feed tells."""
_CREATES_SERVER: Final = frozenset(
    {"prefect.server.api.server:create_app", "tasks.prefect_support.temporary_server:create_app"}
)
_LOGGER = logging.getLogger(__name__)


class _Message(Protocol):
    @property
    def attributes(self) -> Mapping[str, Any] | None: ...


_Handler = Callable[[_Message], Awaitable[None]]


def is_server(arguments: Sequence[str]) -> bool:
    """Whether a module with its arguments is a Prefect server."""
    return list(arguments[:3]) == ["prefect", "server", "start"] or bool(
        _CREATES_SERVER & set(arguments)
    )


def keep_failures() -> bool:
    """Have the server of this process leave events of task runs that go well out of its feed.

    Takes the import of the server's code. Where Prefect is made otherwise than we know it, a line in the
    log says so, and the feed is Prefect's.

    Returns:
        Whether it will.
    """
    if os.environ.get(VARIABLE, "") == "all":
        return False
    try:
        from prefect.server.events.services import event_persister  # noqa: PLC0415 - takes seconds

        create: Any = event_persister.create_handler
        is_used = "create_handler" in event_persister.EventPersister.start.__code__.co_names
    except (ImportError, AttributeError) as error:
        _LOGGER.warning("this Prefect's feed of events keeps all of task runs: %s", error)
        return False
    if not is_used:
        _LOGGER.warning(
            "this Prefect's feed of events keeps all of task runs: its event persister makes its "
            "handler in another way"
        )
        return False
    event_persister.create_handler = _without(create)
    return True


def _without(create: Any) -> Any:
    """Return what makes the same handler, but for messages of events that are left out."""

    @functools.wraps(create)
    @contextlib.asynccontextmanager
    async def create_handler(*args: Any, **kwargs: Any) -> AsyncIterator[_Handler]:
        async with create(*args, **kwargs) as handle:

            async def keep(message: _Message) -> None:
                # The name is beside the event, which need not be read for it.
                if (message.attributes or {}).get("event") not in LEFT_OUT:
                    await handle(message)

            yield keep

    return create_handler
