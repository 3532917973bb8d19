"""Application of a temporary Prefect server, started by one process at a time.

At its start a server brings its database up to date and registers what it ships. Several that begin a
new database together would each create the same tables, and all but one would end.
"""

import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fastapi import FastAPI

LOCK_FILE: Final = "convergence-server.lock"
"""In Prefect's home. The kernel frees the lock of a process that is killed."""


def create_app() -> "FastAPI":
    """Return Prefect's application; its start waits for those of other processes of this home."""
    from prefect.server.api.server import create_app as create  # noqa: PLC0415 - takes seconds
    from prefect.settings import PREFECT_HOME  # noqa: PLC0415 - as above

    app = create()
    started = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def lifespan(served: Any) -> AsyncIterator[Any]:
        async with contextlib.AsyncExitStack() as stack:
            # It may block: until it has started, this process has nothing else to do.
            with alone(Path(PREFECT_HOME.value())):
                state = await stack.enter_async_context(started(served))
            yield state

    app.router.lifespan_context = lifespan
    return app


@contextlib.contextmanager
def alone(home: Path) -> Iterator[None]:
    """Wait until no other process of this home is in such a block."""
    home.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(home / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
