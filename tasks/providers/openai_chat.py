"""Chat models that speak OpenAI's protocol, through the ``openai`` client.

That is OpenAI, Azure OpenAI, Groq, Gemini's compatible endpoint, gateways, and any server alike.
"""

import contextvars
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx

from convergence_core.budget.usage import reported_cost
from convergence_core.records import Json
from convergence_core.thought_tags import TextCallback
from tasks.http.clients import Stopwatch
from tasks.http.faults import bare
from tasks.providers.answers import ChatCompletion, RawAnswer, read_chat
from tasks.providers.chat import ChatSettings, Provider
from tasks.providers.faults import check_finished
from tasks.providers.fields import Dialect, Mapped, map_fields, openai_dialect
from tasks.providers.streams import ChatJoiner, EventCallback, EventJoiner

if TYPE_CHECKING:
    import openai

_STOPWATCH: contextvars.ContextVar[Stopwatch] = contextvars.ContextVar("stopwatch")

_NAMED = ("model", "messages")
"""Fields that the client's method wants by name."""

_CHAT_PATH = "/chat/completions"
_DEPLOYMENT = re.compile(r"/openai/deployments/([^/]+)$")
AZURE_API_VERSION = "2024-10-21"
"""The newest version that is generally available under dated names."""
# The client reads these from the environment; what is sent is what the configuration says.
_CLIENT_HEADERS = ("Authorization", "api-key", "OpenAI-Organization", "OpenAI-Project")

_DEFAULTS = ChatSettings()


class OpenAIChat(Provider):
    """One endpoint that speaks OpenAI's chat protocol; see ``Provider``.

    Args:
        base_url: with or without ``/chat/completions``.
        settings: see ``ChatSettings``.
        dialect: which fields there are; ``None``: what the host tells.
        sends_to: server that answers in place of ``base_url``.
    """

    def __init__(
        self,
        base_url: str,
        settings: ChatSettings = _DEFAULTS,
        *,
        dialect: Dialect | None = None,
        sends_to: str | None = None,
    ) -> None:
        super().__init__(base_url.rstrip("/").removesuffix(_CHAT_PATH), settings)
        self._dialect = dialect or openai_dialect(base_url)
        self._sends_to = sends_to or self.base_url
        self._openai: openai.AsyncOpenAI | None = None

    def mapped(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, settings: Mapping[str, Json]
    ) -> Mapped:
        """See ``Provider.mapped``."""
        mapped = map_fields(
            settings, dialect=self._dialect, model=model, unsupported=self._settings.unsupported
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
        on_text: TextCallback | None = None,
    ) -> ChatCompletion:
        """See ``Provider.send``."""
        body, joiner, pieces = {**body, "model": model}, None, None
        more: dict[str, Any] = {"extra_query": query or None}
        if stream:
            if self._dialect != "mistral":  # which refuses it, and tells the usage all the same
                body.setdefault("stream_options", {"include_usage": True})
            if body.get("stream_options", {}) is None:
                del body["stream_options"]
            pieces = self._pieces(on_text, model)
            joiner, more["stream"] = ChatJoiner(pieces), True
        answer = await self._post(body, joiner, more)
        self._check_chat(answer.raw)
        url, secret = bare(self.base_url), self._settings.secret
        check_finished(answer.raw, httpx.Headers(), url=url, secret=secret)
        done = read_chat(answer, is_split=self._settings.separate_thinking)
        done = self._noted(done, pieces, model)
        is_billed_here = self._dialect == "openrouter"
        return replace(done, cost_usd=reported_cost(answer.raw)) if is_billed_here else done

    async def forward(
        self, path: str, body: Mapping[str, Json], on_event: EventCallback | None = None
    ) -> RawAnswer:
        """See ``Provider.forward``."""
        sent, url = dict(self._settings.headers()), f"{self._sends_to}/{path}"
        joiner = None if on_event is None else EventJoiner(on_event)
        async with self._exchange(sent) as stopwatch:
            _STOPWATCH.set(stopwatch)
            trace = {"trace": stopwatch}
            request = self._open_client().stream(
                "POST", url, json=body, headers=sent, extensions=trace
            )
            async with request as response:
                return await self._read(response, joiner, stopwatch)

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        self._openai = None
        await super().aclose()

    async def _post(
        self,
        body: Mapping[str, Json],
        joiner: ChatJoiner | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> RawAnswer:
        """Send a body once by the client's method: some fields by name, the rest as they are."""
        import openai  # noqa: PLC0415 - takes half a second; only chat targets pay for it

        client: Any = self._open_openai()
        sent = dict(self._settings.headers())
        given = {name.lower() for name in sent}
        unset = {name: openai.Omit() for name in _CLIENT_HEADERS if name.lower() not in given}
        async with self._exchange(sent) as stopwatch:
            _STOPWATCH.set(stopwatch)
            with self._client_errors():
                request = client.chat.completions.with_streaming_response.create(
                    **{name: body[name] for name in _NAMED},
                    extra_body={name: v for name, v in body.items() if name not in _NAMED},
                    extra_headers={**unset, **sent},
                    **(more or {}),
                )
                async with request as answer:
                    return await self._read(answer.http_response, joiner, stopwatch)

    @contextmanager
    def _client_errors(self) -> Iterator[None]:
        """Turn the client's own errors into what lies behind them."""
        import openai  # noqa: PLC0415 - as above

        try:
            yield
        except openai.APIStatusError as error:
            response: Any = error.response
            raise self._status_fault(response) from None
        except openai.APIConnectionError as error:
            raise (error.__cause__ or OSError(str(error))) from None

    def _open_openai(self) -> "openai.AsyncOpenAI":
        if self._openai is None:
            # The client of openai 2 is httpx's; that of openai 3 takes it too, whatever its types say.
            http_client: Any = self._open_client()
            http_client.event_hooks["request"].append(_attach_stopwatch)
            self._openai = self._make_openai(
                {
                    "api_key": "unused",  # the headers carry the key, or nothing does
                    "max_retries": 0,
                    "timeout": http_client.timeout,
                    "http_client": http_client,
                }
            )
        return self._openai

    def _make_openai(self, settings: dict[str, Any]) -> "openai.AsyncOpenAI":
        import openai  # noqa: PLC0415 - as above

        return openai.AsyncOpenAI(base_url=self._sends_to, **settings)


_AZURE_DEFAULTS = ChatSettings(provider="azure")


class AzureChat(OpenAIChat):
    """A resource of Azure OpenAI: the model is a deployment, and part of the URL.

    The endpoint may be written as the portal shows it, with ``/openai/deployments/…`` and what
    follows. Azure's undated interface, ``…/openai/v1``, is spoken to as it wants.
    """

    def __init__(
        self,
        base_url: str,
        settings: ChatSettings = _AZURE_DEFAULTS,
        *,
        api_version: str | None = None,
        deployment: str | None = None,
    ) -> None:
        url = base_url.partition("?")[0].rstrip("/").removesuffix(_CHAT_PATH)
        match = _DEPLOYMENT.search(url)
        self._deployment = deployment or (match[1] if match else None)
        self._api_version = api_version or AZURE_API_VERSION
        self._is_undated = url.endswith("/openai/v1")
        if not self._is_undated:
            url = _DEPLOYMENT.sub("", url).removesuffix("/openai") + "/openai"
        super().__init__(url, settings, dialect="azure")

    def address(self, model: str) -> dict[str, Json]:
        """Return deployment and version, which are parts of the URL."""
        if self._is_undated:
            return {}
        return {"deployment": self._deployment or model, "api_version": self._api_version}

    async def forward(
        self, path: str, body: Mapping[str, Json], on_event: EventCallback | None = None
    ) -> RawAnswer:
        """See ``Provider.forward``; a dated interface has other paths."""
        if self._is_undated:
            return await super().forward(path, body, on_event)
        return await Provider.forward(self, path, body, on_event)

    def _make_openai(self, settings: dict[str, Any]) -> "openai.AsyncOpenAI":
        import openai  # noqa: PLC0415 - as above

        if self._is_undated:
            return super()._make_openai(settings)
        return openai.AsyncAzureOpenAI(
            azure_endpoint=self.base_url.removesuffix("/openai"),
            azure_deployment=self._deployment,
            api_version=self._api_version,
            **settings,
        )


async def _attach_stopwatch(request: httpx.Request) -> None:
    request.extensions["trace"] = _STOPWATCH.get()
