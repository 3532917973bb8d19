"""Chat models that speak OpenAI's protocol, through the ``openai`` client.

That is OpenAI, Azure OpenAI, Groq, Gemini's compatible endpoint, gateways, and any server alike.
"""

import asyncio
import contextvars
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

import httpx

from convergence_core.errors import CandidateFault, InfrastructureFault
from convergence_core.records import Json
from tasks.http.stopwatch import Stopwatch
from tasks.providers.answers import ChatCompletion, read_chat
from tasks.providers.chat import ChatSettings, Provider
from tasks.providers.fields import Dialect, Mapped, map_fields, openai_dialect
from tasks.providers.streams import ChatJoiner

if TYPE_CHECKING:
    import openai

_STOPWATCH: contextvars.ContextVar[Stopwatch] = contextvars.ContextVar("stopwatch")

RawPath: TypeAlias = Literal["completions", "embeddings", "chat/completions"]
RawAnswer: TypeAlias = dict[str, Json]
_NAMED: Mapping[RawPath, tuple[str, ...]] = {
    "completions": ("model", "prompt"),
    "embeddings": ("model", "input", "encoding_format"),
    "chat/completions": ("model", "messages"),
}
"""Fields that the client's methods want by name."""

_CHAT_PATH = "/chat/completions"
_DEPLOYMENT = re.compile(r"/openai/deployments/([^/]+)$")
AZURE_API_VERSION = "2024-10-21"
"""The newest version that is generally available under dated names."""
_STREAM_OPTIONS: dict[str, Json] = {"include_usage": True}
# The client reads these from the environment; what is sent is what the configuration says.
_OWN_HEADERS = ("Authorization", "api-key", "OpenAI-Organization", "OpenAI-Project")


class OpenAIChat(Provider):
    """One endpoint that speaks OpenAI's chat protocol; see ``Provider``. Never retries by itself.

    ``base_url`` may be written with or without ``/chat/completions``. ``dialect`` says which
    fields there are; absent: what the host tells. ``sends_to`` is called in place of ``base_url``,
    when another server answers for it.
    """

    def __init__(
        self,
        base_url: str,
        *,
        dialect: Dialect | None = None,
        sends_to: str | None = None,
        **settings: Unpack[ChatSettings],
    ) -> None:
        super().__init__(base_url.rstrip("/").removesuffix(_CHAT_PATH), **settings)
        self._dialect = dialect or openai_dialect(base_url)
        self._sends_to = sends_to
        self._client: openai.AsyncOpenAI | None = None

    def mapped(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, settings: Mapping[str, Json]
    ) -> Mapped:
        """See ``Provider.mapped``."""
        mapped = map_fields(
            settings, dialect=self._dialect, model=model, unsupported=self._unsupported
        )
        listed: list[Json] = [dict(message) for message in messages]
        body = {**mapped.body, "model": model, "messages": listed}
        return Mapped(body=body, dropped=mapped.dropped, refused=mapped.refused)

    async def send(
        self,
        body: Mapping[str, Json],
        *,
        model: str,
        query: Mapping[str, Json] | None = None,
        stream: bool = False,
    ) -> ChatCompletion:
        """See ``Provider.send``."""
        client = self._open_client()
        sent = dict(self._headers())
        request = self._request(sent, {**body, "model": model}, ("model", "messages"))
        request["extra_query"] = query or None
        first_token_ms: float | None = None
        async with self._exchanging(sent) as stopwatch:
            if stream:
                joined = await self._stream(client, request, stopwatch, sent)
                raw, first_token_ms, latency_ms = joined
            else:
                create = client.chat.completions.with_raw_response.create
                answer: Any = await create(**request)
                latency_ms = stopwatch.read_ms()
                raw = self._parsed(answer.http_response, sent)
        self._check_chat(raw)
        return read_chat(raw, latency_ms=latency_ms, first_token_ms=first_token_ms)

    async def exchange(self, path: RawPath, body: Mapping[str, Json]) -> tuple[RawAnswer, float]:
        """Ask another endpoint of the same server once; return its JSON and the milliseconds.

        Args:
            path: ``completions`` continues a text; ``embeddings`` has vectors of texts;
                ``chat/completions`` takes a server's own fields as they are.
            body: of the request, the model included.

        Raises:
            CandidateFault: the request is refused, or the server has no such endpoint.
            InfrastructureFault: as ``send``.
        """
        client = self._open_client()
        sent = dict(self._headers())
        request = self._request(sent, body, _NAMED[path])
        resource: Any = (
            client.chat.completions if path == "chat/completions" else getattr(client, path)
        )
        try:
            async with self._exchanging(sent) as stopwatch:
                answer = await resource.with_raw_response.create(**request)
                latency_ms = stopwatch.read_ms()
                raw = self._parsed(answer.http_response, sent)
        except InfrastructureFault as fault:
            if fault.error_type != "http_501":
                raise
            raise CandidateFault(
                f"the server has no `{path}` for this model", error_type="no_endpoint"
            ) from None
        return raw, latency_ms

    def _request(
        self, sent: Mapping[str, str], body: Mapping[str, Json], named: tuple[str, ...]
    ) -> dict[str, Any]:
        """Return the arguments of the client's method: some fields by name, the rest as they are."""
        import openai  # noqa: PLC0415 - takes half a second; only chat targets pay for it

        given = {name.lower() for name in sent}
        headers: dict[str, Any] = {
            name: openai.Omit() for name in _OWN_HEADERS if name.lower() not in given
        }
        return {
            **{name: body[name] for name in named},
            "extra_body": {k: v for k, v in body.items() if k not in named},
            "extra_headers": {**headers, **sent},
        }

    @asynccontextmanager
    async def _exchanging(self, sent: Mapping[str, str]) -> AsyncIterator[Stopwatch]:
        """Time one exchange, end it by its limit, and turn its errors into faults."""
        import openai  # noqa: PLC0415 - as above

        limit = asyncio.timeout(None)
        stopwatch = self._connection.stopwatch(limit)
        _STOPWATCH.set(stopwatch)
        try:
            async with limit:
                yield stopwatch
        except openai.APIStatusError as error:
            found: Any = error.response
            raise self._fault(found.status_code, found.text, found.headers, sent) from None
        except (openai.APIConnectionError, httpx.HTTPError, OSError, UnicodeError) as error:
            cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else None
            raise self._exchange_fault(cause or error, stopwatch, sent) from None

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _stream(
        self,
        client: "openai.AsyncOpenAI",
        request: dict[str, Any],
        stopwatch: Stopwatch,
        sent: Mapping[str, str],
    ) -> tuple[dict[str, Json], float | None, float]:
        body = {"stream_options": _STREAM_OPTIONS} | request["extra_body"]
        if body["stream_options"] is None:
            del body["stream_options"]
        request = {**request, "extra_body": body}
        create = client.chat.completions.with_streaming_response.create
        async with create(**request, stream=True) as answer:
            response: Any = answer.http_response
            return await self._joined(response, ChatJoiner(), stopwatch, sent)

    def _open_client(self) -> "openai.AsyncOpenAI":
        if self._client is None:
            # The client of openai 2 is httpx's; that of openai 3 takes it too, whatever its types say.
            http_client: Any = self._connection.open()
            http_client.event_hooks["request"].append(_attach_stopwatch)
            settings: dict[str, Any] = {
                "api_key": "unused",  # the headers carry the key, or nothing does
                "max_retries": 0,
                "timeout": http_client.timeout,
                "http_client": http_client,
            }
            self._client = self._make_client(settings)
        return self._client

    def _make_client(self, settings: dict[str, Any]) -> "openai.AsyncOpenAI":
        import openai  # noqa: PLC0415 - as above

        return openai.AsyncOpenAI(base_url=self._sends_to or self._base_url, **settings)


class AzureChat(OpenAIChat):
    """A resource of Azure OpenAI: the model is a deployment, and part of the URL.

    The endpoint may be written as the portal shows it, with ``/openai/deployments/…`` and what
    follows. Azure's undated interface, ``…/openai/v1``, is spoken to as it wants.
    """

    provider = "azure"

    def __init__(
        self,
        base_url: str,
        *,
        api_version: str | None = None,
        deployment: str | None = None,
        **settings: Unpack[ChatSettings],
    ) -> None:
        url = base_url.partition("?")[0].rstrip("/").removesuffix(_CHAT_PATH)
        found = _DEPLOYMENT.search(url)
        self._deployment = deployment or (found[1] if found else None)
        self._api_version = api_version or AZURE_API_VERSION
        self._is_undated = url.endswith("/openai/v1")
        if not self._is_undated:
            url = _DEPLOYMENT.sub("", url).removesuffix("/openai") + "/openai"
        super().__init__(url, dialect="azure", **settings)

    def place(self, model: str) -> dict[str, Json]:
        """Return deployment and version, which are parts of the URL."""
        if self._is_undated:
            return {}
        return {"deployment": self._deployment or model, "api_version": self._api_version}

    def _make_client(self, settings: dict[str, Any]) -> "openai.AsyncOpenAI":
        import openai  # noqa: PLC0415 - as above

        if self._is_undated:
            return openai.AsyncOpenAI(base_url=self._base_url, **settings)
        return openai.AsyncAzureOpenAI(
            azure_endpoint=self._base_url.removesuffix("/openai"),
            azure_deployment=self._deployment,
            api_version=self._api_version,
            **settings,
        )


async def _attach_stopwatch(request: httpx.Request) -> None:
    request.extensions["trace"] = _STOPWATCH.get()
