"""Chat models with OpenAI's protocol.

These are OpenAI, Azure OpenAI, Groq, Gemini's compatible endpoint, gateways, and compatible
servers.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote, urlencode

from convergence_core.budget.usage import reported_cost
from convergence_core.records import Json
from tasks.providers.answers import ChatCompletion, RawAnswer, read_chat
from tasks.providers.chat import WHOLE, ChatSettings, Delivery, Provider
from tasks.providers.fields import Dialect, Mapped, map_fields, openai_dialect
from tasks.providers.streams import ChatJoiner, EventCallback, EventJoiner

_CHAT_PATH = "/chat/completions"
_DEPLOYMENT = re.compile(r"/openai/deployments/([^/]+)$")
AZURE_API_VERSION = "2024-10-21"
"""Newest generally available version under dated names."""

_DEFAULTS = ChatSettings()


class OpenAIChat(Provider):
    """Endpoint with OpenAI's chat protocol; see ``Provider``.

    Args:
        base_url: URL with or without ``/chat/completions``.
        settings: see ``ChatSettings``.
        dialect: Dialect of the request fields; ``None`` derives it from the host.
        sends_to: Server that answers instead of ``base_url``.
    """

    def __init__(
        self,
        base_url: str,
        settings: ChatSettings = _DEFAULTS,
        *,
        dialect: Dialect | None = None,
        sends_to: str | None = None,
    ) -> None:
        super().__init__(base_url, settings, _CHAT_PATH)
        self._dialect = dialect or openai_dialect(base_url)
        self._sends_to = sends_to or self.base_url

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
        self, body: Mapping[str, Json], *, model: str, delivery: Delivery = WHOLE
    ) -> ChatCompletion:
        """See ``Provider.send``."""
        body, joiner, pieces = {**body, "model": model}, None, None
        if delivery.stream:
            body["stream"] = True
            if self._dialect != "mistral":  # which rejects it, and reports the usage anyway
                body.setdefault("stream_options", {"include_usage": True})
            if body.get("stream_options", {}) is None:
                del body["stream_options"]
            pieces = self._pieces(delivery.on_text, model)
            joiner = ChatJoiner(pieces)
        answer = await self._post(self._chat_url(model), body, joiner, delivery)
        done = self._noted(self._completion(answer, read_chat), pieces, model)
        is_billed_here = self._dialect == "openrouter"
        return replace(done, cost_usd=reported_cost(answer.raw)) if is_billed_here else done

    async def forward(
        self, path: str, body: Mapping[str, Json], on_event: EventCallback | None = None
    ) -> RawAnswer:
        """See ``Provider.forward``."""
        joiner = None if on_event is None else EventJoiner(on_event)
        return await self._post(f"{self._sends_to}/{path}", body, joiner)

    def _chat_url(self, model: str) -> str:  # noqa: ARG002 - Azure needs it
        """Return the URL of chats with a model."""
        return f"{self._sends_to}{_CHAT_PATH}"


_AZURE_DEFAULTS = ChatSettings(provider="azure")


class AzureChat(OpenAIChat):
    """Azure OpenAI resource, whose model is a deployment in the URL.

    The endpoint may be the URL that the portal shows, with ``/openai/deployments/…`` and what
    follows. Azure's undated interface, ``…/openai/v1``, gets its own URLs.
    """

    def __init__(
        self,
        base_url: str,
        settings: ChatSettings = _AZURE_DEFAULTS,
        *,
        api_version: str | None = None,
        deployment: str | None = None,
    ) -> None:
        url, mark, query = base_url.partition("?")
        url = url.rstrip("/").removesuffix(_CHAT_PATH)
        match = _DEPLOYMENT.search(url)
        self._deployment = deployment or (match[1] if match else None)
        self._api_version = api_version or AZURE_API_VERSION
        self._is_undated = url.endswith("/openai/v1")
        if not self._is_undated:
            url = _DEPLOYMENT.sub("", url).removesuffix("/openai") + "/openai"
        super().__init__(f"{url}{mark}{query}", settings, dialect="azure")

    def address(self, model: str) -> dict[str, Json]:
        """Return deployment and version, which are parts of the URL."""
        if self._is_undated:
            return {}
        return {"deployment": self._deployment or model, "api_version": self._api_version}

    def variant(self, model: str) -> dict[str, Json]:
        """Return the query, and the deployment if its name is not the model's."""
        is_named = self._is_undated or self._deployment in (None, model)
        return super().variant(model) | ({} if is_named else {"deployment": self._deployment})

    async def forward(
        self, path: str, body: Mapping[str, Json], on_event: EventCallback | None = None
    ) -> RawAnswer:
        """See ``Provider.forward``; a dated interface has other paths."""
        if self._is_undated:
            return await super().forward(path, body, on_event)
        return await Provider.forward(self, path, body, on_event)

    def _chat_url(self, model: str) -> str:
        if self._is_undated:
            return super()._chat_url(model)
        deployment = quote(self._deployment or model, safe="")
        version = urlencode({"api-version": self._api_version})
        return f"{self._sends_to}/deployments/{deployment}{_CHAT_PATH}?{version}"
