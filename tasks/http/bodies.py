"""Bounded bodies of answers: decoded in small pieces, up to a limit.

Requests accept only ``gzip`` and ``deflate``. This module decodes instead of httpx, which decodes
everything that has arrived: one megabyte may decode to a thousand. It counts bytes before and
after decoding, and never holds more than the limit and one piece.

The cause of an answer that is too large is unknown: a parameter may request it, or a server or
proxy may be broken. So its cell is missing, never 0, and is not retried.
"""

import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import httpx

from convergence_core.errors import InfrastructureFault

CODINGS: Final = ("gzip", "deflate")
TOO_LARGE: Final = "answer_too_large"
MAX_RESPONSE_BYTES: Final = 10_000_000
MAX_ERROR_BYTES: Final = 1_000_000
"""Maximum bytes of an answer that reports an error; the rest is not read."""
MOST_CODINGS: Final = 2
"""Maximum nested codings of an answer; servers use one."""
_PIECE: Final = 65_536


def too_large(url: str, max_bytes: int) -> InfrastructureFault:
    """Return the fault of an answer that is larger than allowed."""
    return InfrastructureFault(
        f"the answer of {url} has more than {max_bytes:,} bytes, so it was not read whole. Let "
        "it answer less, or raise `max_response_bytes`.",
        error_type=TOO_LARGE,
        retryable=False,
        may_be_billed=True,
    )


def limiting(max_bytes: int) -> Callable[[httpx.Response], object]:
    """Return a response hook of an asynchronous client that limits the bytes read.

    It raises an ``InfrastructureFault`` for an unrequested coding, and for an answer that
    announces more than the limit. Otherwise, reading past the limit raises it.
    """

    async def limit(response: httpx.Response) -> None:
        url = str(
            response.request.url.copy_with(username="", password="", query=None, fragment=None)
        )
        limit_body(response, max_bytes, lambda: too_large(url, max_bytes))

    return limit


def limit_body(
    response: httpx.Response, max_bytes: int, fault_of: Callable[[], Exception]
) -> None:
    """Decode a body while it is read, and raise a fault above the limit.

    Args:
        response: Response with its headers read.
        max_bytes: Maximum decoded bytes; an answer that reports an error is truncated instead.
        fault_of: Function that returns the fault.

    Raises:
        InfrastructureFault: the body has an unrequested coding.
    """
    header = response.headers.get("content-encoding", "").lower()
    named = [name.strip().removeprefix("x-") for name in header.split(",")]
    codings = [name for name in named if name not in ("", "identity")]
    if len(codings) > MOST_CODINGS or not {*codings} <= {*CODINGS}:
        raise InfrastructureFault(
            f"the answer of {response.request.url.host} is encoded as {', '.join(codings)}; only "
            f"{' and '.join(CODINGS)} are read",
            error_type="bad_body",
            retryable=False,
            may_be_billed=True,
        )
    is_error = response.status_code >= 300
    length = response.headers.get("content-length", "")
    if not is_error and length.isdecimal() and float(length[:18]) > max_bytes:
        raise fault_of()
    for name in ("content-encoding", "content-length"):
        response.headers.pop(name, None)  # of the encoded body; httpx would decode it again
    limit = _Limit(
        codings, min(max_bytes, MAX_ERROR_BYTES) if is_error else max_bytes,
        None if is_error else fault_of,
    )  # fmt: skip
    response.stream = _LimitedBody(response.stream, limit)


class _Limit:
    """Chain of decoders of one body, with byte counts between them."""

    def __init__(
        self, codings: list[str], max_bytes: int, fault_of: Callable[[], Exception] | None
    ) -> None:
        self.is_over = False
        """Whether the rest is skipped."""
        self._decoders = [_Decoder(name) for name in reversed(codings)]
        self._left = [max_bytes] * (len(codings) + 1)
        self._fault_of = fault_of

    def pieces(self, part: bytes, depth: int = 0) -> Iterator[bytes]:
        """Yield the decoded pieces of a part.

        Raises:
            Exception: the fault of ``fault_of``, above the limit.
            httpx.DecodingError: the part does not match its coding.
        """
        if self.is_over:
            return
        if len(part) > self._left[depth]:
            if self._fault_of is not None:
                raise self._fault_of()
            part = part[: self._left[depth]]
        self._left[depth] -= len(part)
        if depth == len(self._decoders):
            yield part
        else:
            for piece in self._decoders[depth].pieces(part):
                yield from self.pieces(piece, depth + 1)
        if self._fault_of is None and self._left[depth] == 0:
            self.is_over = True

    def check_whole(self) -> None:
        """Check that the body is complete.

        Raises:
            httpx.DecodingError: the body was cut off.
        """
        if not self.is_over and not all(decoder.is_whole for decoder in self._decoders):
            raise httpx.DecodingError("the encoded answer was cut off")


class _Decoder:
    """Incremental decoder of one coding."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._inner: zlib._Decompress | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the body ended, or never started."""
        return self._inner is None or self._inner.eof

    def pieces(self, part: bytes) -> Iterator[bytes]:
        """Yield the decoded bytes of a part, in pieces of bounded size.

        Raises:
            httpx.DecodingError: the part does not match this coding.
        """
        piece = b""
        while part or len(piece) == _PIECE:
            if self._inner is None or (self._inner.eof and self._is_member(part)):
                self._inner = zlib.decompressobj(self._window_bits(part))
            if self._inner.eof:
                return
            try:
                piece = self._inner.decompress(part, _PIECE)
            except zlib.error as error:
                raise httpx.DecodingError(f"no {self._coding}: {error}") from None
            if piece:
                yield piece
            part = self._inner.unconsumed_tail or self._inner.unused_data

    def _is_member(self, part: bytes) -> bool:
        """Return whether another gzip member begins; other bytes after the end are padding."""
        return self._coding == "gzip" and part.startswith(b"\x1f")

    def _window_bits(self, part: bytes) -> int:
        if self._coding == "gzip":
            return zlib.MAX_WBITS | 16
        # RFC 9110 section 8.4.1.2 requires zlib's frame, which many servers omit.
        has_frame = part[0] & 0x0F == zlib.DEFLATED
        return zlib.MAX_WBITS if has_frame else -zlib.MAX_WBITS


class _LimitedBody(httpx.AsyncByteStream, httpx.SyncByteStream):
    """Limited body, for synchronous and asynchronous clients."""

    def __init__(self, stream: Any, limit: _Limit) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            for piece in self._limit.pieces(part):
                yield piece
            if self._limit.is_over:
                return
        self._limit.check_whole()

    def __iter__(self) -> Iterator[bytes]:
        for part in self._stream:
            yield from self._limit.pieces(part)
            if self._limit.is_over:
                return
        self._limit.check_whole()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def close(self) -> None:
        self._stream.close()
