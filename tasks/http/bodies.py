"""Bounded bodies of answers: decoded in small pieces, never read beyond a limit.

Requests ask for ``gzip`` and ``deflate`` alone. Decoding is done here and not by httpx, which
decodes whatever has arrived at once: a megabyte may decode to a thousand. Bytes are counted before
decoding and after it, and at no moment is more held than the limit and one piece.

Who caused an answer that is too large is not known: a parameter may ask for it, and a server or
proxy may be broken. So its cell is missing, never 0, and the same is not asked again.
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
"""Of an answer that reports an error: what follows is not read, and its status counts."""
MOST_CODINGS: Final = 2
"""Of one answer, one around the other; servers use one."""
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
    """Return a hook for answers of an asynchronous client, which limits what is read of each.

    It raises an ``InfrastructureFault`` for a coding that was not asked for and for an answer that
    says it is too large; reading an answer raises it where that shows later.
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
    """Decode a body while it is read, and raise a fault where it exceeds the limit.

    Args:
        response: whose head has come.
        max_bytes: most bytes, decoded; of an answer that reports an error the rest is left out.
        fault_of: what to raise.

    Raises:
        InfrastructureFault: the body is encoded as it was not asked for.
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
        response.headers.pop(name, None)  # of what was sent; httpx would decode it once more
    limit = _Limit(
        codings, min(max_bytes, MAX_ERROR_BYTES) if is_error else max_bytes,
        None if is_error else fault_of,
    )  # fmt: skip
    response.stream = _LimitedBody(response.stream, limit)


class _Limit:
    """The decoders of one body, one behind the other, and the bytes that passed each."""

    def __init__(
        self, codings: list[str], max_bytes: int, fault_of: Callable[[], Exception] | None
    ) -> None:
        self.is_over = False
        """Whether the rest is left out."""
        self._decoders = [_Decoder(name) for name in reversed(codings)]
        self._left = [max_bytes] * (len(codings) + 1)
        self._fault_of = fault_of

    def pieces(self, part: bytes, depth: int = 0) -> Iterator[bytes]:
        """Yield what a part decodes to.

        Raises:
            Exception: ``fault_of``'s, at the limit.
            httpx.DecodingError: it is not of its coding.
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
        """Check that nothing is missing.

        Raises:
            httpx.DecodingError: the body was cut off.
        """
        if not self.is_over and not all(decoder.is_whole for decoder in self._decoders):
            raise httpx.DecodingError("the encoded answer was cut off")


class _Decoder:
    """Undoes one coding, a piece at a time."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._inner: zlib._Decompress | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the end has come, or nothing at all."""
        return self._inner is None or self._inner.eof

    def pieces(self, part: bytes) -> Iterator[bytes]:
        """Yield what a part decodes to, in pieces of bounded size.

        Raises:
            httpx.DecodingError: it is not of this coding.
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
        """Whether a further member of a gzip file begins; all else behind the end is padding."""
        return self._coding == "gzip" and part.startswith(b"\x1f")

    def _window_bits(self, part: bytes) -> int:
        if self._coding == "gzip":
            return zlib.MAX_WBITS | 16
        # RFC 9110 section 8.4.1.2 wants zlib's frame, which many servers leave out.
        has_frame = part[0] & 0x0F == zlib.DEFLATED
        return zlib.MAX_WBITS if has_frame else -zlib.MAX_WBITS


class _LimitedBody(httpx.AsyncByteStream, httpx.SyncByteStream):
    """A limited body, read by a client of either kind."""

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
