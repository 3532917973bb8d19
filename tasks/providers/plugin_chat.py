"""Chat models of plugins, asked as every other provider."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from convergence_core.errors import CandidateFault
from convergence_core.ports import LLM, Completion
from convergence_core.records import Json, canonical_json, sha256_hex
from convergence_core.thought_tags import SplitText, TextCallback, split_thinking
from tasks.json_values import NotJsonError, clean_text, to_json
from tasks.plugins.calls import PluginCalls, believed_ms, checked_usage
from tasks.plugins.entry_points import Plugin, PluginContext, find_plugin
from tasks.providers.answers import EMPTY, ChatCompletion
from tasks.providers.chat import ChatSettings, Provider
from tasks.providers.fields import Mapped


class PluginChat(Provider):
    """Asks the chat model of a plugin; its settings are sent as they are named.

    Args:
        plugin: that offers it.
        llm: what its factory made.
        context: with which it was made.
        settings: how it is asked.
    """

    def __init__(
        self, plugin: Plugin, llm: LLM, context: PluginContext, settings: ChatSettings
    ) -> None:
        # Options shape answers, and the address is part of every key of the journal.
        digest = sha256_hex(canonical_json(dict(context.options)))[:16]
        address = f"plugin:{plugin.name}@{plugin.version}"
        super().__init__(f"{address}#{digest}" if context.options else address, settings)
        self._plugin = plugin
        self._llm = llm
        self._calls = PluginCalls(plugin, timeout_s=context.timeout_s, n_workers=context.n_workers)

    def mapped(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, settings: Mapping[str, Json]
    ) -> Mapped:
        """Return model, messages and settings; the plugin decides what it takes."""
        turns: list[Json] = [dict(message) for message in messages]
        return Mapped(body={"model": model, "messages": turns, **settings})

    async def send(
        self,
        body: Mapping[str, Json],
        *,
        model: str,
        query: Mapping[str, Json] | None = None,  # noqa: ARG002 - refused by the configuration
        stream: bool = False,  # noqa: ARG002 - an answer comes whole
        on_text: TextCallback | None = None,  # noqa: ARG002 - as above
    ) -> ChatCompletion:
        """Ask once; see ``PluginCalls.run`` for its faults."""
        options = {
            name: value for name, value in body.items() if name not in ("model", "messages")
        }
        messages = body["messages"]
        name = model.removeprefix(f"{self._plugin.name}/")
        ask = partial(self._llm.complete, messages, model=name, **options)  # type: ignore[arg-type]
        completion, took_ms = await self._calls.run(ask, Completion, _storable)
        split = split_thinking(completion.text)
        if not self._settings.separate_thinking:
            split = SplitText(None, completion.text)
        fault = None
        if not split.answer.strip():
            message = f"{self._plugin.told} answered nothing"
            fault = CandidateFault(message, error_type=EMPTY)
        return ChatCompletion(
            text=split.answer,
            thinking="\n\n".join(filter(None, (completion.thinking, split.thinking))) or None,
            latency_ms=believed_ms(completion.latency_ms, took_ms),
            model=completion.model,
            usage=completion.usage,
            dropped=completion.dropped,
            finish_reason=completion.finish_reason,
            raw=completion.raw,
            fault=fault,
        )

    async def aclose(self) -> None:
        """Let the plugin free what it holds; safe to call twice."""
        await self._calls.aclose(self._llm.aclose)


def make_plugin_chat(context: PluginContext, settings: ChatSettings) -> PluginChat:
    """Return the chat model that a plugin of ``convergence.providers`` offers.

    Raises:
        ConfigurationError: no such plugin is installed, or it does not work.
    """
    plugin = find_plugin("convergence.providers", context)
    return PluginChat(plugin, plugin.make(context, ("complete", "aclose")), context, settings)


def _storable(completion: Completion) -> Completion:
    """Return an answer whose text and numbers can be stored.

    Raises:
        NotJsonError: its text, its tokens or its raw form is none.
    """
    if not isinstance(completion.text, str):
        raise NotJsonError(
            f"`text` is a {type(completion.text).__name__}", error_type="bad_result"
        )
    raw = to_json(completion.raw)
    if not isinstance(raw, dict):
        raise NotJsonError("`raw` is no mapping", error_type="bad_result")
    return replace(
        completion,
        text=clean_text(completion.text),
        usage=checked_usage(completion.usage),
        raw=raw,
    )
