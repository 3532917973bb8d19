"""Chat models behind an OpenAI-compatible endpoint, through the ``openai`` client."""

import asyncio
import contextvars
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from convergence_core.errors import CandidateFault, EvaluationFault
from convergence_core.records import Json
from convergence_core.target import Completion
from tasks.http_calls import bad_body_fault, make_client, status_fault, transport_fault
from tasks.stopwatch import Stopwatch
from tasks.values import as_text, to_json

if TYPE_CHECKING:
    import openai

_STOPWATCH: contextvars.ContextVar[Stopwatch] = contextvars.ContextVar("stopwatch")

_CHAT_PATH = "/chat/completions"

REQUEST_FIELDS = frozenset(
    """
    frequency_penalty logit_bias logprobs max_completion_tokens max_tokens metadata min_p model n
    parallel_tool_calls prediction presence_penalty prompt_cache_key reasoning_effort
    repetition_penalty response_format safety_identifier seed service_tier stop store temperature
    tool_choice tools top_k top_logprobs top_p user verbosity web_search_options
    """.split()  # noqa: SIM905 - as a literal it would be thirty lines
)
"""Fields of a chat request that a parameter of the same name sets."""


class OpenAIChat:
    """One endpoint that speaks OpenAI's chat protocol. Never retries by itself.

    Args:
        base_url: with or without ``/chat/completions``.
        headers: called for each request, so that a key is read when it is used.
        timeout_s: from sending to the last byte; also the limit for connecting.
        n_connections: most connections at once.
        secret: environment variable of the key, for messages.
    """

    provider = "openai"

    def __init__(
        self,
        base_url: str,
        *,
        headers: Callable[[], Mapping[str, str]] = dict,
        timeout_s: float = 60.0,
        n_connections: int = 100,
        secret: str | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/").removesuffix(_CHAT_PATH)
        self._headers = headers
        self._timeout_s = timeout_s
        self._n_connections = n_connections
        self._secret = secret
        self._client: openai.AsyncOpenAI | None = None

    @property
    def base_url(self) -> str:
        """Where requests go, without ``/chat/completions``."""
        return self._base_url

    async def complete(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, **options: Json
    ) -> Completion:
        """Ask once.

        Raises:
            CandidateFault: the request is refused, or the answer holds no text.
            ConfigurationError: an environment variable is not set.
            InfrastructureFault: network, time-out, rate limit, server, or refused access.
        """
        return await self.ask(messages, model=model, options=options)

    async def ask(
        self,
        messages: Sequence[Mapping[str, Json]],
        *,
        model: str,
        options: Mapping[str, Json],
        query: Mapping[str, Json] | None = None,
    ) -> Completion:
        """Ask once, with query parameters; see ``complete``."""
        import openai  # noqa: PLC0415 - takes half a second; only chat targets pay for it

        client = self._open_client()
        headers: dict[str, Any] = {"Authorization": openai.Omit(), **self._headers()}
        try:
            async with asyncio.timeout(None) as deadline:
                stopwatch = Stopwatch(deadline, self._timeout_s)
                _STOPWATCH.set(stopwatch)
                response: Any = await client.chat.completions.with_raw_response.create(
                    model=model,
                    messages=list(messages),  # type: ignore[arg-type]  # checked by the server
                    extra_body=options,
                    extra_headers=headers,
                    extra_query=query or None,
                )
                latency_ms = stopwatch.read_ms()
        except openai.APIStatusError as error:
            answer: Any = error.response
            raise self._status_fault(answer) from error
        except (openai.APIConnectionError, httpx.HTTPError, OSError) as error:
            cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
            raise transport_fault(
                cause or error, url=self._base_url, timeout_s=self._timeout_s
            ) from error
        return self._completion(response.http_response, latency_ms)

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _open_client(self) -> "openai.AsyncOpenAI":
        if self._client is None:
            import openai  # noqa: PLC0415 - as above

            # The client of openai 2 is httpx's; that of openai 3 takes it too, whatever its types say.
            http_client: Any = make_client(self._timeout_s, self._n_connections)
            http_client.event_hooks = {"request": [_attach_stopwatch]}
            timeout: Any = http_client.timeout
            self._client = openai.AsyncOpenAI(
                api_key="unused",  # the headers carry the key, or nothing does
                base_url=self._base_url,
                max_retries=0,
                timeout=timeout,
                http_client=http_client,
            )
        return self._client

    def _status_fault(self, response: httpx.Response) -> EvaluationFault:
        return status_fault(
            response.status_code,
            response.text,
            response.headers,
            url=_bare(self._base_url),
            secret=self._secret,
        )

    def _completion(self, response: httpx.Response, latency_ms: float) -> Completion:
        if response.status_code >= 300:
            raise self._status_fault(response)
        try:
            raw = to_json(response.json())
        except (ValueError, TypeError, RecursionError) as error:
            raise bad_body_fault(error, response.text, url=_bare(self._base_url)) from error
        if not isinstance(raw, dict):
            raise bad_body_fault(
                ValueError("not an object"), response.text, url=_bare(self._base_url)
            )
        text, finish_reason = _text_of(raw)
        usage = raw.get("usage")
        counts = usage if isinstance(usage, dict) else {}
        model = raw.get("model")
        return Completion(
            text=text,
            latency_ms=latency_ms,
            model=model if isinstance(model, str) else None,
            tokens_in=_count(counts.get("prompt_tokens")),
            tokens_out=_count(counts.get("completion_tokens")),
            finish_reason=finish_reason,
            raw=raw,
        )


async def _attach_stopwatch(request: httpx.Request) -> None:
    request.extensions["trace"] = _STOPWATCH.get()


def _bare(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _text_of(raw: Mapping[str, Json]) -> tuple[str, str | None]:
    """Return the first choice's text and why it ended.

    Raises:
        CandidateFault: refused, filtered, or empty.
    """
    choices = raw.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict):
        raise CandidateFault("the model's answer holds no choice", error_type="empty_reply")
    reason = first.get("finish_reason")
    finish_reason = reason if isinstance(reason, str) else None
    message = first.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    refusal = message.get("refusal") if isinstance(message, dict) else None
    if isinstance(refusal, str) and refusal:
        raise CandidateFault(f"the model refused: {refusal[:500]}", error_type="refusal")
    if finish_reason == "content_filter":
        raise CandidateFault("the provider's filter stopped the answer", error_type="refusal")
    if isinstance(content, list):  # parts, as some servers send
        content = "".join(
            as_text(part.get("text", "")) for part in content if isinstance(part, dict)
        )
    if not isinstance(content, str) or not content.strip():
        why = f" (finish reason: {finish_reason})" if finish_reason else ""
        raise CandidateFault(f"the model's answer is empty{why}", error_type="empty_reply")
    return content, finish_reason


def _count(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
