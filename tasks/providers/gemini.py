"""Gemini in its own protocol, ``models.generateContent``, through httpx.

The key travels in a header (``x-goog-api-key``), never in the URL, where logs would keep it.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from convergence_core.records import Json
from convergence_core.thought_tags import TextCallback
from tasks.providers.answers import ChatCompletion, read_gemini
from tasks.providers.chat import ChatSettings, Provider
from tasks.providers.fields import Mapped
from tasks.providers.gemini_fields import gemini_request
from tasks.providers.streams import GeminiJoiner

_DEFAULTS = ChatSettings(provider="gemini")


class GeminiChat(Provider):
    """One endpoint of Gemini's own protocol; see ``Provider``."""

    def __init__(self, base_url: str, settings: ChatSettings = _DEFAULTS) -> None:
        super().__init__(base_url.rstrip("/").removesuffix("/openai"), settings)

    def mapped(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, settings: Mapping[str, Json]
    ) -> Mapped:
        """See ``Provider.mapped``; the model is part of the URL."""
        unsupported = self._settings.unsupported
        return gemini_request(messages, settings, model=model, unsupported=unsupported)

    def address(self, model: str) -> dict[str, Json]:  # noqa: ARG002 - as the protocol has it
        """Return that it is the provider's own protocol."""
        return {"protocol": "native"}

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
        name = quote(model.removeprefix("models/"), safe="")
        method = "streamGenerateContent" if stream else "generateContent"
        sent = dict(self._settings.headers())
        params: dict[str, Any] = {**(query or {}), **({"alt": "sse"} if stream else {})}
        async with self._exchange(sent) as stopwatch:
            asked = self._open_client().stream(
                "POST",
                f"{self.base_url}/models/{name}:{method}",
                params=params or None,
                json=dict(body),
                headers=sent,
                extensions={"trace": stopwatch},
            )
            async with asked as response:
                joiner = GeminiJoiner(self._pieces(on_text, model)) if stream else None
                answer = await self._read(response, joiner, stopwatch)
        self._check_chat(answer.raw)
        return read_gemini(
            answer.raw,
            latency_ms=answer.latency_ms,
            first_token_ms=answer.first_token_ms,
            is_split=self._settings.separate_thinking,
        )
