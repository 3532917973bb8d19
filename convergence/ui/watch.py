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
"""Seconds between events on settled cells, which a running run settles all the time."""
_BEAT_S = 15.0
"""Seconds of silence before a stream sends a heartbeat, so that proxies keep it open."""


class StoreWatch:
    """Watcher of a store, which polls once for all viewers."""

    def __init__(self, root: Path, ends: Callable[[], bool] = lambda: False) -> None:
        """Watch a store from the first request.

        Args:
            root: folder of the store.
            ends: returns whether the server shuts down, which ends event streams.
        """
        self._root, self._ends = root, ends
        self._mark: StoreMark | None = None
        self._cells_s = float("-inf")
        self._looking = asyncio.Lock()
        self._viewers: set[asyncio.Queue[str | None]] = set()
        self._poller: asyncio.Task[None] | None = None

    async def _look(self) -> None:
        """Check whether the store has changed, and notify viewers."""
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
        """Yield changes as server-sent events until the viewer disconnects."""
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
    """Notify a viewer. A viewer that does not read misses changes, but sees the next."""
    with contextlib.suppress(asyncio.QueueFull):
        queue.put_nowait(json.dumps({"run_id": change.run_id, "kind": change.kind}))
