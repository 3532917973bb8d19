"""What all providers of chat models share: settings, one exchange, faults without secrets."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack
from urllib.parse import urlsplit

import httpx

from convergence_core.errors import (
    Billed,
    CandidateFault,
    EvaluationFault,
    InfrastructureFault,
)
from convergence_core.records import Json
from tasks.http.authentication import header_fault
from tasks.http.bodies import MAX_RESPONSE_BYTES
from tasks.http.clients import bad_body_fault, make_client, transport_fault
from tasks.http.stopwatch import Stopwatch
from tasks.json_values import to_json
from tasks.providers.answers import ChatCompletion
from tasks.providers.faults import provider_fault, reported_fault
from tasks.providers.fields import Mapped, Unsupported
from tasks.providers.streams import DONE, Joiner, cut_fault, event_data, read_piece
from tasks.secrets.redaction import Redactor

_CHAT_FIELDS = ("choices", "candidates", "promptFeedback", "usage", "usageMetadata")
_DRAIN_S = 0.5
"""Longest wait for the end of a stream that has said it is whole."""
_MIN_SECRET = 8
"""Shorter values of headers are no keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEndpoint:
    """How an endpoint is reached."""

    timeout_s: float = 60.0
    """From sending to the last byte."""
    connect_s: float | None = None
    """Longest wait for a connection; ``None``: ``timeout_s``."""
    first_byte_s: float | None = None
    """From sending to the head of the answer; ``None``: ``timeout_s``."""
    n_connections: int = 100
    """Most connections at once."""
    max_response_bytes: int = MAX_RESPONSE_BYTES
    """Most bytes of an answer, decoded."""

    def open(self) -> httpx.AsyncClient:
        """Return a client that never retries."""
        return make_client(
            self.timeout_s,
            self.n_connections,
            connect_s=self.connect_s,
            max_response_bytes=self.max_response_bytes,
        )

    def stopwatch(self, limit: asyncio.Timeout) -> Stopwatch:
        """Return what times one exchange, and ends it by this limit."""
        return Stopwatch(limit, self.timeout_s, first_byte_s=self.first_byte_s)


class ChatSettings(TypedDict, total=False):
    """What every provider can be told."""

    headers: Callable[[], Mapping[str, str]]
    """Called for each request, so that a key is read when it is used. Absent: none are sent."""
    connection: ChatEndpoint
    """How the endpoint is reached."""
    secret: str | None
    """Environment variable of the key, for messages."""
    unsupported: Unsupported
    """What happens with a setting that the model has no field for. Absent: it is refused."""
    provider: str
    """Short name for tables and prices. Absent: the class's own."""


class Provider(ABC):
    """An ``LLM`` whose request can be seen before it is sent; never retries by itself."""

    provider = "openai"

    def __init__(self, base_url: str, **settings: Unpack[ChatSettings]) -> None:
        self._base_url = base_url
        self._headers = settings.get("headers", dict)
        self._connection = settings.get("connection", ChatEndpoint())
        self._secret = settings.get("secret")
        self._unsupported = settings.get("unsupported", "refuse")
        self.provider = settings.get("provider", self.provider)

    @property
    def base_url(self) -> str:
        """Where requests go; part of every ``call_key``."""
        return self._base_url

    @abstractmethod
    def mapped(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, settings: Mapping[str, Json]
    ) -> Mapped:
        """Return the body of a request: pure, no secret in it.

        Raises:
            CandidateFault: a message holds what the provider has no form for.
        """

    def place(self, model: str) -> dict[str, Json]:  # noqa: ARG002 - some need it
        """Return what beside base URL, model and body says who is asked."""
        return {}

    @abstractmethod
    async def send(
        self,
        body: Mapping[str, Json],
        *,
        model: str,
        query: Mapping[str, Json] | None = None,
        stream: bool = False,
    ) -> ChatCompletion:
        """Send a mapped body once.

        An answer that was billed and is of no use (refused, empty) is returned with its fault.

        Args:
            body: as ``mapped`` made it.
            model: as it is asked for.
            query: parameters of the URL.
            stream: whether the answer comes in pieces, which tells when it began.

        Raises:
            CandidateFault: the request is refused for its content or parameters.
            ConfigurationError: an environment variable is not set.
            InfrastructureFault: network, time-out, rate limit, server, or refused access.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""

    async def complete(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, **options: Json
    ) -> ChatCompletion:
        """Ask once; see ``LLM.complete``.

        Raises:
            CandidateFault: the request is refused, or the answer holds nothing; its ``billed``
                says what that cost.
            ConfigurationError: an environment variable is not set.
            InfrastructureFault: network, time-out, rate limit, server, or refused access.
        """
        mapped = self.mapped(messages, model=model, settings=options)
        check_refused(mapped, model=model, provider=self.provider)
        completion = await self.send(mapped.body, model=model)
        if completion.fault is not None:
            completion.fault.billed = Billed(
                usage=completion.usage, cost_usd=None, model=completion.model
            )
            raise completion.fault
        return replace(completion, dropped=mapped.dropped) if mapped.dropped else completion

    def _exchange_fault(
        self, error: BaseException, stopwatch: Stopwatch, sent: Mapping[str, Any]
    ) -> EvaluationFault:
        """Return the fault of an exchange that broke off; errors of headers may repeat keys."""
        if isinstance(error, EvaluationFault):
            return error  # of a checkpoint
        unsendable = header_fault(error, self._secret)
        if unsendable is not None:
            return unsendable
        connection = self._connection
        fault = transport_fault(
            error,
            url=bare(self._base_url),
            timeout_s=connection.timeout_s,
            connect_s=connection.connect_s,
            first_byte_s=connection.first_byte_s,
            stopwatch=stopwatch,
        )
        return without_secrets(fault, sent)

    def _fault(
        self, status: int, text: str, headers: httpx.Headers, sent: Mapping[str, Any]
    ) -> EvaluationFault:
        fault = provider_fault(
            status, text, headers, url=bare(self._base_url), secret=self._secret
        )
        return without_secrets(fault, sent)

    def _parsed(self, response: httpx.Response, sent: Mapping[str, Any]) -> dict[str, Json]:
        """Return the JSON object of a whole answer, or raise its fault."""
        if response.status_code >= 300:
            raise self._fault(response.status_code, response.text, response.headers, sent)
        url = bare(self._base_url)
        try:
            raw = to_json(response.json())
        except (ValueError, TypeError, RecursionError) as error:
            fault = bad_body_fault(error, response.text, url=url)
            raise without_secrets(fault, sent) from None
        if not isinstance(raw, dict):
            problem = ValueError("not an object")
            raise without_secrets(bad_body_fault(problem, response.text, url=url), sent)
        reported = reported_fault(raw, response.headers, url=url, secret=self._secret)
        if reported is not None and not raw.get("choices"):
            raise without_secrets(reported, sent)
        return raw

    def _check_chat(self, raw: Mapping[str, Json]) -> None:
        """Check that an object is an answer of a chat model at all, though maybe an empty one.

        Raises:
            InfrastructureFault: it has none of the fields that such an answer has.
        """
        if raw.keys().isdisjoint(_CHAT_FIELDS):
            raise InfrastructureFault(
                f"the answer of {bare(self._base_url)} is none of a chat model: it has none of "
                f"{', '.join(f'`{name}`' for name in _CHAT_FIELDS)}",
                error_type="bad_body",
                details=json.dumps(dict(raw), ensure_ascii=False),
                may_be_billed=True,
            )

    async def _joined(
        self,
        response: httpx.Response,
        joiner: Joiner,
        stopwatch: Stopwatch,
        sent: Mapping[str, Any],
    ) -> tuple[dict[str, Json], float | None, float]:
        """Return a streamed answer in one piece, and the milliseconds to its first and last piece.

        Raises:
            EvaluationFault: the stream reports an error, or was cut.
        """
        url = bare(self._base_url)
        if "text/event-stream" not in response.headers.get("content-type", "text/event-stream"):
            await response.aread()  # a server that does not stream
            return self._parsed(response, sent), None, stopwatch.read_ms()
        first_token_ms: float | None = None
        chunks = response.aiter_bytes()
        async with aclosing(event_data(chunks)) as events:
            async for data in events:
                if data.strip() == DONE:
                    latency_ms = stopwatch.read_ms()
                    await _drain(chunks)
                    return joiner.raw, first_token_ms, latency_ms
                if not data.strip():
                    continue
                piece = read_piece(data, url=url)
                fault = reported_fault(piece, response.headers, url=url, secret=self._secret)
                if fault is not None:
                    raise without_secrets(fault, sent)
                if joiner.add(piece) and first_token_ms is None:
                    first_token_ms = stopwatch.read_ms()
        if not joiner.is_whole:
            raise cut_fault(url)
        return joiner.raw, first_token_ms, stopwatch.read_ms()


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read the end of a stream that is whole, so that its connection can be used again."""
    with suppress(httpx.HTTPError, httpx.StreamError, TimeoutError, InfrastructureFault):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in chunks:
                pass


def check_refused(mapped: Mapped, *, model: str, provider: str) -> None:
    """Check that a request holds no setting that its provider or model has no field for.

    Raises:
        CandidateFault: names each of them with the reason.
    """
    if mapped.refused:
        listed = "; ".join(f"`{name}`: {reason}" for name, reason in mapped.refused)
        raise CandidateFault(
            f"nothing was sent, for {model} of {provider} does not take all settings: {listed}. "
            "Leave them out, give the parameter a `when`, or write "
            "`api.request.unsupported: drop`.",
            error_type="unsupported_parameter",
        )


def without_secrets(fault: EvaluationFault, sent: Mapping[str, Any]) -> EvaluationFault:
    """Take what was sent in headers out of a fault: servers repeat keys in their errors."""
    values = [value for value in sent.values() if isinstance(value, str)]
    words = {word for value in values for word in (value, *value.split())}
    redact = Redactor(values=[word for word in words if len(word) >= _MIN_SECRET])
    fault.args = tuple(redact(str(part)) for part in fault.args)
    fault.details = redact(fault.details)
    return fault


def bare(url: str) -> str:
    """Return a URL without user name, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
