"""Poller of one store for all viewers; answers are kept until it changes."""

import asyncio
import contextlib
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

from tasks.pages.changes import StoreChange, StoreMark

_EVERY_S = 1.0
_FRESH_S = 0.5
"""Seconds for which a look at the store holds."""
_CELLS_S = 3.0
"""Seconds from one event on settled cells to the next: a run settles some all the time."""
_MOST_BYTES = 48 << 20
_LARGEST = 16 << 20
"""Longer answers are not kept."""
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
        self._looked_s = float("-inf")
        self._cells_s = float("-inf")
        self._looking = asyncio.Lock()
        self._viewers: set[asyncio.Queue[str | None]] = set()
        self._poller: asyncio.Task[None] | None = None
        self.version = 0
        """Changes seen so far."""
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._making: dict[str, asyncio.Lock] = {}

    async def look(self) -> None:
        """Look whether the store has changed; tell viewers, and forget what was kept."""
        async with self._looking:
            if time.monotonic() - self._looked_s < _FRESH_S:
                return
            now = await asyncio.to_thread(StoreMark.of, self._root)
            self._looked_s = time.monotonic()
            is_early = self._looked_s - self._cells_s < _CELLS_S
            if self._mark is not None and is_early:
                now = replace(now, call=self._mark.call)
            if now == self._mark:
                return
            if self._mark is not None and now.call != self._mark.call:
                self._cells_s = self._looked_s
            self._kept.clear()
            self.version += 1
            for change in () if self._mark is None else self._mark.changes_to(now):
                for queue in self._viewers:
                    _offer(queue, change)
            self._mark = now

    def forget(self) -> None:
        """Forget what was kept, and look again at the next request: something was written here."""
        self._looked_s = float("-inf")
        self._kept.clear()
        self.version += 1

    def kept(self, key: str) -> bytes | None:
        """Return an answer that was made since the store last changed."""
        return self._kept.get(key)

    def keep(self, key: str, answer: bytes, version: int) -> None:
        """Keep an answer that was made of this version, until the store changes."""
        if len(answer) > _LARGEST or version != self.version:
            return
        self._kept[key] = answer
        while sum(map(len, self._kept.values())) > _MOST_BYTES:
            self._kept.popitem(last=False)

    @contextlib.asynccontextmanager
    async def making(self, key: str) -> AsyncIterator[None]:
        """Let one request make an answer that others wait for."""
        lock = self._making.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._making.pop(key, None)

    async def events(self) -> AsyncIterator[bytes]:
        """Give changes as server-sent events, until the viewer leaves."""
        await self.look()
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
            await self.look()
            await asyncio.sleep(_EVERY_S)
        for queue in self._viewers:
            with contextlib.suppress(asyncio.QueueFull):
                queue.put_nowait(None)


def _offer(queue: asyncio.Queue[str | None], change: StoreChange) -> None:
    """Tell a viewer; one who does not read misses changes, and sees the next."""
    with contextlib.suppress(asyncio.QueueFull):
        queue.put_nowait(json.dumps({"run_id": change.run_id, "kind": change.kind}))
