"""Anthropic in its own protocol, ``/v1/messages``, through httpx."""

from collections.abc import Mapping, Sequence

from convergence_core.records import Json
from convergence_core.thought_tags import TextCallback
from tasks.providers.answers import ChatCompletion, read_anthropic
from tasks.providers.anthropic_fields import anthropic_request
from tasks.providers.chat import ChatSettings, Provider
from tasks.providers.fields import Mapped
from tasks.providers.streams import AnthropicJoiner

API_VERSION = "2023-06-01"
"""Header ``anthropic-version``: names of fields and events are those of this version."""
_PATH = "/messages"
_DEFAULTS = ChatSettings(provider="anthropic")


class AnthropicChat(Provider):
    """One endpoint of Anthropic's messages; see ``Provider``.

    Args:
        base_url: with or without ``/messages``.
        settings: see ``ChatSettings``.
        sends_to: server that answers in place of ``base_url``.
    """

    def __init__(
        self, base_url: str, settings: ChatSettings = _DEFAULTS, *, sends_to: str | None = None
    ) -> None:
        super().__init__(base_url.rstrip("/").removesuffix(_PATH), settings)
        self._sends_to = sends_to or self.base_url

    def mapped(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, settings: Mapping[str, Json]
    ) -> Mapped:
        """See ``Provider.mapped``."""
        unsupported = self._settings.unsupported
        return anthropic_request(messages, settings, model=model, unsupported=unsupported)

    def address(self, model: str) -> dict[str, Json]:  # noqa: ARG002 - as the protocol has it
        """Return the protocol's version."""
        return {"anthropic_version": API_VERSION}

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
        sent = dict(self._settings.headers())
        whole = {**body, "model": model, **({"stream": True} if stream else {})}
        params: dict[str, str] = {name: str(value) for name, value in (query or {}).items()}
        async with self._exchange(sent) as stopwatch:
            asked = self._open_client().stream(
                "POST",
                f"{self._sends_to}{_PATH}",
                params=params or None,
                json=whole,
                headers={"anthropic-version": API_VERSION, **sent},
                extensions={"trace": stopwatch},
            )
            async with asked as response:
                joiner = AnthropicJoiner(self._pieces(on_text, model)) if stream else None
                answer = await self._read(response, joiner, stopwatch)
        self._check_chat(answer.raw)
        return read_anthropic(
            answer.raw,
            latency_ms=answer.latency_ms,
            first_token_ms=answer.first_token_ms,
            is_split=self._settings.separate_thinking,
        )
