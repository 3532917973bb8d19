"""Streams of one answer's text, whatever writes it.

What writes calls back with each piece; who reads iterates. A stream that is closed before its end
cancels the request.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Self, TypeVar

from convergence_core.thought_tags import TextCallback

Ending = TypeVar("Ending")


class AnswerStream(Generic[Ending]):
    """Pieces of an answer's text, then its ending; an asynchronous iterator for one reader.

    ::

        async with AnswerStream(write) as stream:
            async for piece in stream:
                ...
        stream.ending
    """

    def __init__(self, write: Callable[[TextCallback], Awaitable[Ending]]) -> None:
        """Begin with the context.

        Args:
            write: called once, with what takes each piece; what it returns is the ending.
        """
        self._write = write
        self._pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self._task: asyncio.Task[Ending] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancel what has not ended, and wait until it has."""
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        """Return the next piece.

        Raises:
            Exception: what ended the answer, after the pieces that came.
        """
        assert self._task is not None, "a stream begins with its context"  # noqa: S101 - a fault of ours
        piece = await self._pieces.get()
        if piece is None:
            self._pieces.put_nowait(None)
            self._task.result()
            raise StopAsyncIteration
        return piece

    @property
    def ending(self) -> Ending:
        """What the answer ended with; there is one when all pieces were read."""
        assert self._task is not None, "a stream begins with its context"  # noqa: S101 - as above
        return self._task.result()

    async def _run(self) -> Ending:
        try:
            return await self._write(self._pieces.put_nowait)
        finally:
            self._pieces.put_nowait(None)
