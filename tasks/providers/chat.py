"""Providers of chat models: settings, one timed exchange, redacted faults."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl

import httpx

from convergence_core.budget.usage import usage_of
from convergence_core.errors import CandidateFault, EvaluationFault, InfrastructureFault
from convergence_core.records import Json
from convergence_core.thought_tags import AnswerPieces, TextCallback, begins_within
from tasks.http.clients import ClientSettings, HttpClient, Stopwatch
from tasks.http.faults import bad_body_fault, bare
from tasks.json_values import to_json
from tasks.providers.answers import ChatCompletion, RawAnswer
from tasks.providers.faults import provider_fault, reported_fault, unfinished_fault
from tasks.providers.fields import Mapped, Unsupported
from tasks.providers.streams import (
    DONE,
    EVENTS,
    EventCallback,
    Joiner,
    cut_fault,
    event_data,
    read_piece,
)
from tasks.secrets.redaction import Redactor

_CHAT_FIELDS = ("choices", "content", "usage")
_DRAIN_S = 0.5
"""Maximum seconds to wait for the end of a stream that has announced it."""
_MIN_SECRET = 8
"""Minimum characters of a header value that is redacted as a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """Settings of every provider."""

    headers: Callable[[], Mapping[str, str]] = dict
    """Function that returns the headers; each request calls it, so keys are read late."""
    client: ClientSettings = field(default_factory=ClientSettings)
    secret: str | None = None
    unsupported: Unsupported = "refuse"
    """Handling of settings that the model has no field for."""
    provider: str = "openai"
    """Short name for tables and prices."""
    separate_thinking: bool = True
    """Whether thinking within an answer is separated from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Delivery options of an answer.

    Args:
        query: URL parameters.
        stream: Whether to stream the answer, which shows its time to the first token.
        on_text: Callback for each piece of text; only streamed answers call it.
    """

    query: Mapping[str, Json] = field(default_factory=dict)
    stream: bool = False
    on_text: TextCallback | None = None


WHOLE = Delivery()


class Provider(ABC):
    """``LLM`` whose requests can be inspected before sending; it never retries."""

    def __init__(self, base_url: str, settings: ChatSettings, path: str = "") -> None:
        url, _, query = base_url.partition("?")
        self.base_url = url.rstrip("/").removesuffix(path)
        """Base URL without ``path`` at its end; part of every ``call_key``."""
        self.query: dict[str, Json] = dict(parse_qsl(query, keep_blank_values=True))
        """Query of the endpoint, sent with every request."""
        self.provider = settings.provider
        """Short name for tables and prices."""
        self._settings = settings
        self._client = HttpClient(settings.client, settings.secret)
        self._origin: dict[str, Any] = {"url": bare(self.base_url), "secret": settings.secret}
        """Endpoint and variable of the key, for faults."""
        self._late_tags: set[str] = set()
        """Models whose answers begin within thinking."""

    @abstractmethod
    def mapped(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, settings: Mapping[str, Json]
    ) -> Mapped:
        """Return the body of a request, without secrets; pure.

        Raises:
            CandidateFault: a message holds content that the provider cannot represent.
        """

    def address(self, model: str) -> dict[str, Json]:  # noqa: ARG002 - some providers need it
        """Return the parts of a request's address other than base URL, model and body."""
        return {}

    def variant(self, model: str) -> dict[str, Json]:  # noqa: ARG002 - some providers need it
        """Return the parts of the address that a plain endpoint of this base URL lacks."""
        return {"query": dict(self.query)} if self.query else {}

    @abstractmethod
    async def send(
        self, body: Mapping[str, Json], *, model: str, delivery: Delivery = WHOLE
    ) -> ChatCompletion:
        """Send a mapped body once.

        A billed but unusable answer (refused, empty) is returned with its fault.

        Args:
            body: Result of ``mapped``.
            model: Model name in the request.
            delivery: Delivery options.

        Raises:
            CandidateFault: the provider rejects the request's content or parameters.
            ConfigurationError: an environment variable is not set.
            InfrastructureFault: network, time-out, rate limit, server, or denied access.
        """

    async def forward(
        self, path: str, body: Mapping[str, Json], on_event: EventCallback | None = None
    ) -> RawAnswer:
        """Send a body in OpenAI's form once, unchanged.

        Args:
            path: Path below the base URL, e.g. ``embeddings``.
            body: Request body.
            on_event: Callback for each event of a streamed answer.

        Raises:
            CandidateFault: the provider has no such path, or rejects the request.
            ConfigurationError: an environment variable is not set.
            InfrastructureFault: network, time-out, rate limit, server, or denied access.
        """
        del body, on_event
        reason = f"{self.provider} has no path /{path} in OpenAI's form"
        raise CandidateFault(reason, error_type="unknown_path")

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        await self._client.aclose()

    async def complete(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, **options: Json
    ) -> ChatCompletion:
        """Call the model once; see ``LLM.complete``.

        Raises:
            CandidateFault: the provider rejects the request, or the answer is empty; ``billed``
                holds its cost.
            ConfigurationError: an environment variable is not set.
            InfrastructureFault: network, time-out, rate limit, server, denied access, or an absent
                answer.
        """
        mapped = self.mapped(messages, model=model, settings=options)
        check_refused(mapped, model=model, provider=self.provider)
        completion = await self.send(mapped.body, model=model)
        if (fault := completion.failure(cost_usd=completion.cost_usd)) is not None:
            raise fault
        return replace(completion, dropped=mapped.dropped) if mapped.dropped else completion

    # -- thinking

    def _pieces(self, on_text: TextCallback | None, model: str) -> AnswerPieces:
        """Return the receiver of a streamed answer's pieces."""
        holds = model in self._late_tags or (on_text is not None and begins_within(model))
        is_split = self._settings.separate_thinking
        return AnswerPieces(on_text, is_split=is_split, holds=holds)

    def _noted(
        self, done: ChatCompletion, pieces: AnswerPieces | None, model: str
    ) -> ChatCompletion:
        """Return a streamed answer, and record its model if the answer began within thinking."""
        if pieces is not None and done.thinking and pieces.passed.strip() != done.text.strip():
            self._late_tags.add(model)
        return done

    # -- one exchange

    async def _post(
        self,
        url: str,
        body: Mapping[str, Json],
        joiner: Joiner | None,
        delivery: Delivery = WHOLE,
        headers: Mapping[str, str] | None = None,
    ) -> RawAnswer:
        """Send a body once and read the answer; keys that servers echo are redacted from faults.

        Raises:
            ConfigurationError: an environment variable is not set.
            EvaluationFault: the exchange failed.
        """
        sent = dict(self._settings.headers())
        params = {**self.query, **delivery.query}
        content = {"json": body, "headers": {**(headers or {}), **sent}, "params": params}
        try:
            async with self._client.exchange(
                "POST", url, shown=bare(self.base_url), **content
            ) as (response, stopwatch):
                answer = await self._read(response, joiner, stopwatch)
        except EvaluationFault as error:
            raise _without_secrets(error, sent) from None
        fault = answer.fault or unfinished_fault(answer.raw, httpx.Headers(), **self._origin)
        return answer._replace(fault=fault and _without_secrets(fault, sent))

    def _completion(
        self, answer: RawAnswer, read: Callable[..., ChatCompletion]
    ) -> ChatCompletion:
        """Return the completion of an answer.

        An answer that reports both an error and its tokens holds the fault.

        Raises:
            EvaluationFault: the answer reports an error without tokens, or is not from a chat
                model.
        """
        if answer.fault is None:
            self._check_chat(answer.raw)
        elif usage_of(answer.raw).total is None:
            raise answer.fault
        done = read(answer, is_split=self._settings.separate_thinking)
        return replace(done, fault=answer.fault or done.fault)

    async def _read(
        self, response: httpx.Response, joiner: Joiner | None, stopwatch: Stopwatch
    ) -> RawAnswer:
        """Read an answer to its end.

        Args:
            response: Response with its headers read.
            joiner: Joiner of the streamed pieces; ``None`` if the answer is not streamed.
            stopwatch: Stopwatch of the exchange.

        Raises:
            EvaluationFault: the status is an error, or the answer is cut or not a JSON object.
        """
        kind = response.headers.get("content-type", "text/event-stream").lower()
        is_whole = joiner is None or response.status_code >= 300
        if is_whole or "text/event-stream" not in kind:
            await response.aread()
            is_whole = is_whole or EVENTS.match(response.content) is None
        if joiner is None or is_whole:
            latency_ms = stopwatch.read_ms()
            return self._parsed(response, response.content, latency_ms)
        first_token_ms: float | None = None
        plain: list[bytes] = []
        chunks = _chunks(response, plain)
        async with aclosing(event_data(chunks)) as events:
            async for data in events:
                if data.strip() == DONE:
                    latency_ms = stopwatch.read_ms()
                    await _drain(chunks)
                    return RawAnswer(joiner.raw, first_token_ms, latency_ms)
                if not data.strip():
                    continue
                piece = read_piece(data, url=bare(self.base_url))
                if joiner.add(piece) and first_token_ms is None:
                    first_token_ms = stopwatch.read_ms()
                has_begun = first_token_ms is not None
                fault = self._reported(piece, response, has_begun=has_begun)
                if fault is not None:
                    latency_ms = stopwatch.read_ms()
                    return RawAnswer(joiner.raw, first_token_ms, latency_ms, fault)
        if plain:
            return self._parsed(response, b"".join(plain), stopwatch.read_ms())
        if not joiner.is_whole:
            raise cut_fault(bare(self.base_url))
        return RawAnswer(joiner.raw, first_token_ms, stopwatch.read_ms())

    def _reported(
        self, raw: Mapping[str, Json], response: httpx.Response, *, has_begun: bool
    ) -> EvaluationFault | None:
        return reported_fault(raw, response.headers, has_begun=has_begun, **self._origin)

    def _parsed(self, response: httpx.Response, content: bytes, latency_ms: float) -> RawAnswer:
        """Return a whole answer, which must be a JSON object, or raise its fault."""
        if response.status_code >= 300:
            status, text, headers = response.status_code, response.text, response.headers
            raise provider_fault(status, text, headers, **self._origin)
        try:
            raw = to_json(json.loads(content))
            if not isinstance(raw, dict):
                raise TypeError("not an object")
        except (ValueError, TypeError, RecursionError) as error:
            text, url = content.decode("utf-8", "replace"), bare(self.base_url)
            raise bad_body_fault(error, text, url=url) from None
        has_choices = bool(raw.get("choices"))
        fault = None if has_choices else self._reported(raw, response, has_begun=False)
        return RawAnswer(raw, None, latency_ms, fault)

    def _check_chat(self, raw: Mapping[str, Json]) -> None:
        """Check that an object is an answer of a chat model, even if it is empty.

        Raises:
            InfrastructureFault: it has none of the fields of such an answer.
        """
        if raw.keys().isdisjoint(_CHAT_FIELDS):
            raise InfrastructureFault(
                f"the answer of {bare(self.base_url)} is not from a chat model: it has none of "
                f"{', '.join(f'`{name}`' for name in _CHAT_FIELDS)}",
                error_type="bad_body",
                details=json.dumps(dict(raw), ensure_ascii=False),
                may_be_billed=True,
            )


async def _chunks(response: httpx.Response, plain: list[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks of a stream; a body that begins as a JSON object goes to ``plain``."""
    has_begun = False
    async for chunk in response.aiter_bytes():
        begins = chunk.lstrip(b"\xef\xbb\xbf \t\r\n")
        if plain or (not has_begun and begins.startswith(b"{")):
            plain.append(chunk)
        else:
            has_begun = has_begun or bool(begins)
            yield chunk


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read the end of a whole stream so that its connection can be reused."""
    with suppress(httpx.HTTPError, httpx.StreamError, TimeoutError, InfrastructureFault):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in chunks:
                pass


def check_refused(mapped: Mapped, *, model: str, provider: str) -> None:
    """Check that a request holds no setting that its provider or model has no field for.

    Raises:
        CandidateFault: names each such setting with the reason.
    """
    if mapped.refused:
        listed = "; ".join(f"`{name}`: {reason}" for name, reason in mapped.refused)
        raise CandidateFault(
            f"nothing was sent, because {model} of {provider} does not accept all settings: {listed}. "
            "Leave them out, give the parameter a `when`, or write "
            "`api.request.unsupported: drop`.",
            error_type="unsupported_parameter",
        )


def _without_secrets(fault: EvaluationFault, sent: Mapping[str, Any]) -> EvaluationFault:
    """Redact the values of sent headers from a fault."""
    values = [value for value in sent.values() if isinstance(value, str)]
    words = {word for value in values for word in (value, *value.split())}
    redact = Redactor(values=[word for word in words if len(word) >= _MIN_SECRET])
    fault.args = tuple(redact(str(part)) for part in fault.args)
    fault.details = redact(fault.details)
    return fault
