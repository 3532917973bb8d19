"""Gemini in its own protocol, ``models.generateContent``, through httpx.

The key travels in a header (``x-goog-api-key``), never in the URL, where logs would keep it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Unpack
from urllib.parse import quote

import httpx

from convergence_core.records import Json
from tasks.providers.answers import ChatCompletion, read_gemini
from tasks.providers.chat import ChatSettings, Provider
from tasks.providers.fields import Mapped
from tasks.providers.gemini_fields import gemini_request
from tasks.providers.streams import GeminiJoiner


class GeminiChat(Provider):
    """One endpoint of Gemini's own protocol; see ``Provider``. Never retries by itself."""

    provider = "gemini"

    def __init__(self, base_url: str, **settings: Unpack[ChatSettings]) -> None:
        super().__init__(base_url.rstrip("/").removesuffix("/openai"), **settings)
        self._client: httpx.AsyncClient | None = None

    def mapped(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, settings: Mapping[str, Json]
    ) -> Mapped:
        """See ``Provider.mapped``; the model is part of the URL."""
        return gemini_request(messages, settings, model=model, unsupported=self._unsupported)

    def place(self, model: str) -> dict[str, Json]:  # noqa: ARG002 - as the protocol has it
        """Return that it is the provider's own protocol."""
        return {"protocol": "native"}

    async def send(
        self,
        body: Mapping[str, Json],
        *,
        model: str,
        query: Mapping[str, Json] | None = None,
        stream: bool = False,
    ) -> ChatCompletion:
        """See ``Provider.send``."""
        name = quote(model.removeprefix("models/"), safe="")
        method = "streamGenerateContent" if stream else "generateContent"
        url = f"{self._base_url}/models/{name}:{method}"
        params = {**(query or {}), **({"alt": "sse"} if stream else {})}
        sent = dict(self._headers())
        first_token_ms: float | None = None
        limit = asyncio.timeout(None)
        stopwatch = self._connection.stopwatch(limit)
        try:
            async with limit:
                client = self._open_client()
                request = client.build_request(
                    "POST",
                    url,
                    params=params or None,  # type: ignore[arg-type]  # texts by name
                    json=dict(body),
                    headers=sent,
                    extensions={"trace": stopwatch},
                )
                response = await client.send(request, stream=stream)
                try:
                    if stream and response.status_code < 300:
                        joiner = GeminiJoiner()
                        raw, first_token_ms, latency_ms = await self._joined(
                            response, joiner, stopwatch, sent
                        )
                    else:
                        await response.aread()
                        latency_ms = stopwatch.read_ms()
                        raw = self._parsed(response, sent)
                finally:
                    await response.aclose()
        except (httpx.HTTPError, httpx.StreamError, OSError, UnicodeError) as error:
            raise self._exchange_fault(error, stopwatch, sent) from None
        self._check_chat(raw)
        return read_gemini(raw, latency_ms=latency_ms, first_token_ms=first_token_ms)

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _open_client(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = self._connection.open()
        return self._client
