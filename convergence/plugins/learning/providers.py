"""Adapter of the caller's chat model to the protocol of RLP and SAO.

Any object with a ``complete`` method works, awaitable or plain. It gets a list of messages, or one
string if its first parameter is annotated ``str`` or named ``prompt``, ``text``, ``question`` or
``query``. It also gets those of ``model``, ``temperature``, ``max_tokens`` and further options
that its signature accepts. It returns a string, a ``Completion``, a mapping or an object with
``text`` or ``content``, or an answer in OpenAI's form (``choices[0].message.content``). Thinking
at the start of the text (``<think>…</think>``) is removed.
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
    """Return a caller's model as an ``LLM``; an object that already is one stays as it is.

    Raises:
        TypeError: the model has no callable ``complete``.
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
    """Adapter of a caller's ``complete`` to the protocol."""

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
        """Call the model once; a plain function runs in a thread."""
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
    except (TypeError, ValueError):  # an extension function without a signature
        return []


def _completion(answer: Any, latency_ms: float) -> Completion:
    """Return a model's answer as a ``Completion``.

    Raises:
        TypeError: the answer has no known form.
    """
    if isinstance(answer, Completion):
        split = split_thinking(answer.text)
        return replace(answer, text=split.answer, thinking=split.thinking or answer.thinking)
    text = answer if isinstance(answer, str) else _text_of(answer)
    if text is None:
        raise TypeError(f"`complete` of the provider {_FORM}, but got {type(answer).__name__}")
    # Plain text has no finish reason, so it counts as complete.
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
    """Return the first choice of an answer in OpenAI's form; ``None`` for another form."""
    choices = _part(first_choice, "choices")
    return choices[0] if isinstance(choices, Sequence) and choices else None


def _part(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
