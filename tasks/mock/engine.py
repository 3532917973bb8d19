"""Engine of the endpoints: the tiny model, its fault modes, the prefix cache."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks.mock.options import FaultMode
from tasks.mock.prompt_text import PER_MESSAGE, PER_REQUEST, PrefixCache, pieces
from tasks.mock.protocol import ApiError, ModelRequest, TokenUsage, Written
from tasks.mock.responder import respond
from tasks.mock.tiny_model import (
    Floats,
    Sample,
    TinyModel,
    UnknownWordError,
    decode,
    encode,
    is_trained,
    tempered,
    tiny_model,
)

_SHARED = 4
"""Words that a prompt must share with the one before to meet its stale probabilities."""
_TINY_LIMIT = 64
"""Most words that the tiny model writes when no limit is given."""


class UntrainedError(Exception):
    """The tiny model is needed and not trained yet; train it outside the event loop, ask again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChoice:
    """One choice of an answer."""

    written: Written
    sample: Sample | None = None
    """The tiny model's words; ``None`` means the general responder wrote."""


class Engine:
    """Answers questions; safe to use from several threads."""

    def __init__(
        self,
        *,
        fault_modes: Iterable[FaultMode] = (),
        strict: bool = False,
        varies: bool = False,
    ) -> None:
        """Prepare to answer; see ``MockOptions`` for the settings."""
        self._varies = varies
        self._fault_modes = frozenset(fault_modes)
        self._strict = strict
        self._cache = PrefixCache()
        self._lock = threading.Lock()
        self._before: tuple[list[int], list[Floats]] = ([], [])

    def reset(self) -> None:
        """Forget earlier prompts."""
        self._cache.clear()
        with self._lock:
            self._before = ([], [])

    def has(self, mode: FaultMode) -> bool:
        """Whether the server is to have this fault."""
        return mode in self._fault_modes

    def ids(self, text: str) -> list[int]:
        """Return a text's words as the tiny model knows them.

        Raises:
            ApiError: one of them is unknown.
        """
        try:
            return encode(text)
        except UnknownWordError as error:
            raise ApiError(str(error), code="unknown_word") from error

    def uses_tiny_model(self, text: str) -> bool:
        """Whether the tiny model answers a text: it knows every word, or the server is strict.

        Raises:
            ApiError: the server is strict and a word is unknown.
        """
        if self._strict:
            self.ids(text)
            return True
        try:
            return bool(encode(text))
        except UnknownWordError:
            return False

    def reported(self, row: Floats, temperature: float) -> Floats:
        """Return a distribution as this server reports it."""
        return tempered(row, temperature) if self.has("temperature") else row

    def after(self, ids: Sequence[int], temperature: float) -> list[Floats]:
        """Return the distributions after each word of a text, as this server reports them."""
        model = _model()
        rows = [model.row(ids[:n]) for n in range(1, len(ids) + 1)]
        if self.has("stale"):
            rows = self._stale(list(ids), rows)
        return [self.reported(row, temperature) for row in rows]

    def within(self, after: list[Floats]) -> list[Floats]:
        """Return the distributions of each word of a text but the first, given those after each."""
        before = after[:-1]
        return [*before[:1], *before[:-1]] if self.has("off_by_one") else before

    def first(self, request: ModelRequest, n: int, attempt: int) -> int:
        """Return the number of the first of ``n`` answers at this attempt."""
        again = self._varies and request.temperature > 0 and request.seed is None
        return n * (attempt - 1) if again else 0

    def choose(
        self, request: ModelRequest, n: int, *, tiny: bool, attempt: int = 1
    ) -> list[AnswerChoice]:
        """Write ``n`` answers.

        Args:
            request: what is asked.
            n: how many.
            tiny: whether the tiny model writes them.
            attempt: number of this attempt at the request, from 1.
        """
        if not tiny:
            first = self.first(request, n, attempt)
            return [AnswerChoice(written=respond(request, first + index)) for index in range(n)]
        ids = self.ids(request.text)
        return [self._continue(ids, request, index) for index in range(n)]

    def tokens(
        self, request: ModelRequest, choices: Sequence[AnswerChoice], *, tiny: bool
    ) -> TokenUsage:
        """Return what an answer is billed for."""
        prompt = request.text.split()
        n_prompt = len(prompt)
        if not tiny:
            prompt = [piece for m in request.messages for piece in (m.role, *pieces(m.text))]
            # The role is one of the four tokens that a message costs beside its text.
            n_prompt = len(prompt) + (PER_MESSAGE - 1) * len(request.messages) + PER_REQUEST
        reasoning = sum(choice.written.n_reasoning for choice in choices)
        return TokenUsage(
            prompt=n_prompt,
            cached=self._cache.cached_tokens(request.model, prompt),
            completion=sum(choice.written.n_tokens for choice in choices) + reasoning,
            reasoning=reasoning,
        )

    def _continue(self, ids: Sequence[int], request: ModelRequest, index: int) -> AnswerChoice:
        sample = _model().sample(
            ids,
            n=_TINY_LIMIT if request.limit is None else request.limit,
            temperature=request.temperature,
            draw=("sample", request.model, request.seed, request.temperature, index, *ids),
        )
        words = decode(sample.ids).split()
        ends = [words.index(stop) for stop in request.stop if stop in words]
        if ends:
            n = min(ends)
            sample = Sample(ids=sample.ids[:n], rows=sample.rows[:n], ended=True)
        written = Written(text=decode(sample.ids), n_tokens=len(sample.ids), complete=sample.ended)
        return AnswerChoice(written=written, sample=sample)

    def _stale(self, ids: list[int], rows: list[Floats]) -> list[Floats]:
        with self._lock:
            ids_before, rows_before = self._before
            self._before = (ids, rows)
        pairs = zip(ids, ids_before, strict=False)
        shared = next(
            (i for i, (a, b) in enumerate(pairs) if a != b), min(len(ids), len(ids_before))
        )
        if ids == ids_before or shared < _SHARED:
            return rows
        last = len(rows_before) - 1
        return [row if i < shared else rows_before[min(i, last)] for i, row in enumerate(rows)]


def _model() -> TinyModel:
    if not is_trained():
        raise UntrainedError
    return tiny_model()
