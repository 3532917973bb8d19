"""Group commit for a journal: many calls' requests in one durable transaction.

The journal blocks until its rows are on disk. One thread waits for it while further requests
gather for the next transaction. In each batch, settlements precede claims, so that a worker that
settles one cell and claims the next never holds two.
"""

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any, Literal, NamedTuple, TypeAlias

from convergence_core.ports import CallIntent, Claim, Settlement, StoredAnswer
from tasks.store.journal.sql_journal import Journal

_Kind: TypeAlias = Literal["settle", "claim", "look"]
_KINDS: tuple[_Kind, ...] = ("settle", "claim", "look")

GATHER_S = 0.0005
"""Seconds that a request waits for others: short next to a call, and a commit takes longer."""


class _Request(NamedTuple):
    kind: _Kind
    subject: Any
    """A ``Settlement``, a ``CallIntent`` or the key of a call, depending on its kind."""
    future: "asyncio.Future[Any]"


class JournalQueue:
    """Requests to one journal from one event loop."""

    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop) -> None:
        self._journal = journal
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"
        self._loop = loop
        self.n_slots = 1
        """Slots that may send requests at the same time; set by their dispatcher."""
        self._queue: SimpleQueue[_Request | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="journal", daemon=True)
        self._thread.start()

    async def claim(self, intent: CallIntent) -> Claim:
        """Claim one call after earlier settlements of this loop; see ``Journal.claim``."""
        claim: Claim = await self._put("claim", intent)
        return claim

    def settle(self, settlement: Settlement) -> "asyncio.Future[None]":
        """Settle one attempt; the future completes when it is durable."""
        return self._put("settle", settlement)

    async def look(self, call_key: str) -> StoredAnswer | None:
        """Return a stored answer without claiming the call."""
        answer: StoredAnswer | None = await self._put("look", call_key)
        return answer

    def close(self) -> None:
        """Finish the queue and stop the thread; safe to call twice."""
        self._queue.put(None)
        self._thread.join()

    def _put(self, kind: _Kind, subject: object) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.put(_Request(kind, subject, future))
        return future

    def _serve(self) -> None:
        is_last = False
        while not is_last:
            batch = self._gather()
            requests = [request for request in batch if request is not None]
            is_last = len(requests) < len(batch)
            if requests:
                self._commit(requests)

    def _gather(self) -> list[_Request | None]:
        """Wait for a request, then briefly for those of other slots, to commit them together."""
        batch = [self._queue.get()]
        deadline = time.monotonic() + GATHER_S
        n_claims = int(_is_claim(batch[0]))
        with contextlib.suppress(Empty):
            while n_claims < self.n_slots and batch[-1] is not None:
                batch.append(self._queue.get(timeout=max(0.0, deadline - time.monotonic())))
                n_claims += _is_claim(batch[-1])
            while True:
                batch.append(self._queue.get_nowait())
        return batch

    def _commit(self, requests: list[_Request]) -> None:
        replies: list[tuple[asyncio.Future[Any], Any]] = []
        for kind in _KINDS:
            group = [request for request in requests if request.kind == kind]
            if not group:
                continue
            answers: Sequence[Any]
            try:
                answers = self._ask(kind, [request.subject for request in group])
            except Exception as error:  # noqa: BLE001 - re-raised by the futures
                answers = [error] * len(group)
            replies += zip((request.future for request in group), answers, strict=True)
        # A closed loop waits for no reply, and the rows are durable.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_deliver, replies)

    def _ask(self, kind: _Kind, subjects: list[Any]) -> Sequence[Any]:
        if kind == "settle":
            self._journal.settle(subjects)
            return [None] * len(subjects)
        if kind == "claim":
            return self._journal.claim(subjects, self._owner)
        answers = self._journal.answers(subjects)
        return [answers.get(key) for key in subjects]


def _is_claim(request: _Request | None) -> bool:
    return request is not None and request.kind != "settle"


def _deliver(replies: list[tuple["asyncio.Future[Any]", Any]]) -> None:
    for future, reply in replies:
        if future.done():
            continue
        if isinstance(reply, Exception):
            future.set_exception(reply)
        else:
            future.set_result(reply)
