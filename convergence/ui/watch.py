"""Poller of one store for all viewers."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

from tasks.pages.changes import StoreChange, StoreMark

_EVERY_S = 1.0
_CELLS_S = 3.0
"""Seconds from one event on settled cells to the next: a run settles some all the time."""
_BEAT_S = 15.0
"""Seconds after which a silent stream says that it lives, so that proxies keep it open."""


class StoreWatch:
    """Looks at a store, once for however many viewers."""

    def __init__(self, root: Path, ends: Callable[[], bool] = lambda: False) -> None:
        """Watch a store, from the first request on.

        Args:
            root: of the store.
            ends: whether the server is about to end, and streams with it.
        """
        self._root, self._ends = root, ends
        self._mark: StoreMark | None = None
        self._cells_s = float("-inf")
        self._looking = asyncio.Lock()
        self._viewers: set[asyncio.Queue[str | None]] = set()
        self._poller: asyncio.Task[None] | None = None

    async def _look(self) -> None:
        """Look whether the store has changed, and tell viewers."""
        async with self._looking:
            now, looked_s = await asyncio.to_thread(StoreMark.of, self._root), time.monotonic()
            if self._mark is not None and looked_s - self._cells_s < _CELLS_S:
                now = replace(now, call=self._mark.call)
            if self._mark is not None and now.call != self._mark.call:
                self._cells_s = looked_s
            for change in () if self._mark is None else self._mark.changes_to(now):
                for queue in self._viewers:
                    _offer(queue, change)
            self._mark = now

    async def events(self) -> AsyncIterator[bytes]:
        """Give changes as server-sent events, until the viewer leaves."""
        await self._look()
        queue: asyncio.Queue[str | None] = asyncio.Queue(maxsize=100)
        self._viewers.add(queue)
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())
        try:
            yield b"retry: 3000\n: begun\n\n"
            while True:
                try:
                    text = await asyncio.wait_for(queue.get(), _BEAT_S)
                    if text is None:
                        return
                    yield f"data: {text}\n\n".encode()
                except TimeoutError:
                    yield b": alive\n\n"
        finally:
            self._viewers.discard(queue)

    async def _poll(self) -> None:
        while self._viewers and not self._ends():
            await self._look()
            await asyncio.sleep(_EVERY_S)
        for queue in self._viewers:
            with contextlib.suppress(asyncio.QueueFull):
                queue.put_nowait(None)


def _offer(queue: asyncio.Queue[str | None], change: StoreChange) -> None:
    """Tell a viewer; one who does not read misses changes, and sees the next."""
    with contextlib.suppress(asyncio.QueueFull):
        queue.put_nowait(json.dumps({"run_id": change.run_id, "kind": change.kind}))
