"""The caller's chat model behind the protocol that RLP and SAO call.

Any object with ``complete`` will do, awaitable or plain. It gets a list of messages, or one text if its first
parameter is annotated ``str`` or named ``prompt``, ``text``, ``question`` or ``query``; and those of ``model``,
``temperature``, ``max_tokens`` and further options that its signature takes. It returns a text, a ``Completion``,
a mapping or an object with ``text`` or ``content``, or an answer in OpenAI's form
(``choices[0].message.content``). Thinking at the start of the text (``<think>…</think>``) is left out.
"""

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from convergence_core.ports import LLM, Completion
from convergence_core.records import Json
from convergence_core.thought_tags import split_thinking

_TEXT_NAMES: Final = frozenset({"prompt", "text", "question", "query"})
_FORM: Final = (
    "must return a text, a `Completion`, a mapping or an object with `text` or `content`, or an answer "
    "with `choices[0].message.content`"
)


class Completer(Protocol):
    """The caller's chat model."""

    @property
    def complete(self) -> Callable[..., Any]:
        """Call the model once; awaitable or plain."""


def as_llm(provider: LLM | Completer) -> LLM:
    """Return a caller's model as an ``LLM``; an object with a ``provider`` and an address is one.

    Raises:
        TypeError: it has no ``complete`` that can be called.
    """
    if isinstance(provider, LLM):
        return provider
    if not callable(getattr(provider, "complete", None)):
        raise TypeError(
            "`llm_provider` must have a method `complete(messages)` or `complete(prompt)`, but got "
            f"{type(provider).__name__}. Give an object whose `complete` returns the model's text."
        )
    return _OwnModel(provider)


class _OwnModel:
    """A caller's ``complete`` behind the protocol."""

    provider = "own"
    base_url = "own"

    def __init__(self, provider: Any) -> None:
        self._complete: Callable[..., Any] = provider.complete
        self.is_plain = not inspect.iscoroutinefunction(self._complete)
        parameters = _parameters(self._complete)
        kinds = {p.kind for p in parameters}
        self._takes_all = inspect.Parameter.VAR_KEYWORD in kinds
        self._names = {p.name for p in parameters[1:]}
        first = parameters[0] if parameters else None
        self._takes_text = first is not None and (
            first.name in _TEXT_NAMES or first.annotation in (str, "str")
        )
        self._keyword = (
            first.name
            if first is not None and first.kind is inspect.Parameter.KEYWORD_ONLY
            else None
        )

    async def complete(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, **options: Json
    ) -> Completion:
        """Ask once; a plain function is called in a thread."""
        given: Any = [dict(message) for message in messages]
        if self._takes_text:
            given = "\n\n".join(str(message["content"]) for message in messages)
        settings = {**({"model": model} if model else {}), **options}
        if not self._takes_all:
            settings = {name: value for name, value in settings.items() if name in self._names}
        args: tuple[Any, ...] = (given,)
        if self._keyword is not None:
            args, settings = (), {self._keyword: given, **settings}
        begin = time.perf_counter()
        if self.is_plain:
            completion = await asyncio.to_thread(self._complete, *args, **settings)
        else:
            completion = self._complete(*args, **settings)
        if inspect.isawaitable(completion):
            completion = await completion
        return _completion(completion, (time.perf_counter() - begin) * 1e3)

    async def aclose(self) -> None:
        """The caller's model stays open."""


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # of an extension: it says nothing of its parameters
        return []


def _completion(answer: Any, latency_ms: float) -> Completion:
    """Return an answer of any known form.

    Raises:
        TypeError: it is of none.
    """
    if isinstance(answer, Completion):
        split = split_thinking(answer.text)
        return replace(answer, text=split.answer, thinking=split.thinking or answer.thinking)
    text = answer if isinstance(answer, str) else _text_of(answer)
    if text is None:
        raise TypeError(f"`complete` of the provider {_FORM}, but got {type(answer).__name__}")
    # A text alone says nothing of its end, and is taken for whole.
    ended = _part(_first(answer), "finish_reason") or _part(answer, "finish_reason") or "stop"
    split = split_thinking(text)
    return Completion(
        text=split.answer,
        thinking=split.thinking,
        latency_ms=latency_ms,
        raw={},
        finish_reason=str(ended),
    )


def _text_of(answer: Any) -> str | None:
    choice = _first(answer)
    answer = _part(choice, "message") or choice or answer
    for name in ("text", "content"):
        text = _part(answer, name)
        if isinstance(text, str):
            return text
    return None


def _first(first_choice: Any) -> Any:
    """Return the first choice of an answer of OpenAI's shape; ``None`` if it is of another one."""
    choices = _part(first_choice, "choices")
    return choices[0] if isinstance(choices, Sequence) and choices else None


def _part(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
