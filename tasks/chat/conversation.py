"""Conversation of one user with one role: turns, ratings and undo.

The writer calls back with each piece; the reader iterates. Closing a stream early cancels the
request.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Final, Generic, Literal, Self, TypeVar

from convergence_core.feedback.records import (
    AnswerComparison,
    ChatMessage,
    Interaction,
    Rating,
    Thumbs,
)
from convergence_core.feedback.roles import DEFAULT, persona_of
from convergence_core.records import fields_of
from convergence_core.thought_tags import TextCallback
from tasks.chat.logged_chat import ChatPrompt, LoggedChat
from tasks.store.feedback.counts import FeedbackCounts, feedback_counts, rater_sentences
from tasks.store.feedback.feedback_store import FeedbackStore, RatingReceipt, new_interaction_id

Piece = TypeVar("Piece")
Ending = TypeVar("Ending")


class AnswerStream(Generic[Piece, Ending]):
    """Pieces of an answer, then its ending; an asynchronous iterator for one reader.

    ::

        async with AnswerStream(write) as stream:
            async for piece in stream:
                ...
        stream.ending
    """

    def __init__(self, write: Callable[[Callable[[Piece], object]], Awaitable[Ending]]) -> None:
        """Create a stream that starts with its context.

        Args:
            write: Function called once with the receiver of pieces; its result is the ending.
        """
        self._write = write
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        self._task: asyncio.Task[Ending] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancel the answer if it has not ended, and wait for it."""
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        """Return the next piece.

        Raises:
            Exception: the answer's error, after the pieces before it.
        """
        assert self._task is not None, "a stream begins with its context"  # noqa: S101 - a bug of ours
        piece = await self._pieces.get()
        if piece is None:
            self._pieces.put_nowait(None)
            self._task.result()
            raise StopAsyncIteration
        return piece

    @property
    def ending(self) -> Ending:
        """Result of the writer, available after all pieces."""
        assert self._task is not None, "a stream begins with its context"  # noqa: S101 - as above
        return self._task.result()

    async def _run(self) -> Ending:
        try:
            return await self._write(self._pieces.put_nowait)
        finally:
            self._pieces.put_nowait(None)


SOURCE: Final = "chat"
BYTES_PER_TOKEN: Final = 3
"""Conservative estimate: English has four or more bytes per token, code about three."""
TOKENS_PER_MESSAGE: Final = 8
"""Tokens of role and delimiters."""
PROMPT_SHARE: Final = 0.75
"""Share of the model's context for the prompt; persona and answer get the rest."""

Undone = Literal["rating", "comparison", "turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPair:
    """Two answers to one question, in random order."""

    question: str
    first: Interaction
    second: Interaction

    def chosen(self, number: int) -> tuple[Interaction, Interaction]:
        """Return the better and the worse answer, by the number of the better: 1 or 2."""
        return (self.first, self.second) if number == 1 else (self.second, self.first)


@dataclass(eq=False, repr=False)
class Conversation:
    """One user's conversation with one role, with every answer logged.

    Args:
        chat: Chat that answers and logs.
        user_id: User.
        role: Persona that answers.
        rng: Random generator of the order in which two answers are shown.

    Raises:
        ConfigurationError: the role does not exist.
    """

    chat: LoggedChat
    _: KW_ONLY
    user_id: str
    role: str = DEFAULT
    rng: random.Random = field(default_factory=random.SystemRandom)

    def __post_init__(self) -> None:
        """Start without turns."""
        self._turns: list[tuple[str, Interaction]] = []
        self._compared: AnswerPair | None = None
        self.begin(self.role)

    def begin(self, role: str) -> None:
        """Restart with a role.

        Raises:
            ConfigurationError: the role does not exist; the conversation stays unchanged.
        """
        persona_of(role, self.chat.roles)
        self.role, self.conversation_id = role, new_interaction_id()
        self._turns, self._compared = [], None

    @property
    def last(self) -> Interaction | None:
        """Last answer; ``None`` if there is none yet."""
        return self._turns[-1][1] if self._turns else None

    def ask(self, question: str) -> AnswerStream[str, Interaction]:
        """Return the stream of an answer, which becomes the last turn at its end."""

        async def write(on_text: TextCallback) -> Interaction:
            answered = await self._answered(question, on_text)
            self._turns.append((question, answered))
            self._compared = None
            return answered

        return AnswerStream(write)

    async def answer_twice(self, question: str | None = None) -> AnswerPair:
        """Answer a question twice, in random order.

        Args:
            question: Question; ``None`` repeats the last one and removes its turn.

        Raises:
            LookupError: there is no last question.
        """
        if question is None:
            if not self._turns:
                raise LookupError("no question yet")
            question = self._turns.pop()[0]
        prompt = question
        first = await self._answered(prompt)
        second = await self._answered(prompt)
        pair = [first, second]
        self.rng.shuffle(pair)
        return AnswerPair(question=prompt, first=pair[0], second=pair[1])

    async def choose(
        self, pair: AnswerPair, number: int, reason: str | None = None
    ) -> Interaction:
        """Store which of two answers is better, make it the last turn, and return it.

        Args:
            pair: Pair as shown.
            number: Number of the better answer, 1 or 2.
            reason: User's reason.
        """
        better, worse = pair.chosen(number)
        comparison = AnswerComparison(
            chosen_id=better.interaction_id,
            rejected_id=worse.interaction_id,
            user_id=self.user_id,
            first_id=pair.first.interaction_id,
            reason=reason,
            source=SOURCE,
        )
        await asyncio.to_thread(self._feedback.compare, comparison)
        self.keep(pair, better)
        self._compared = pair
        return better

    def keep(self, pair: AnswerPair, answer: Interaction) -> None:
        """Continue with one of two answers, without a comparison."""
        self._turns.append((pair.question, answer))
        self._compared = None

    async def rate(
        self, rating: int | None = None, *, thumbs: Thumbs | None = None, reason: str | None = None
    ) -> RatingReceipt:
        """Store the user's mark of the last answer; a second mark replaces it.

        The first mark is the reward of the arm that answered.

        Raises:
            FeedbackRefusedError: the mark is on no scale.
            LookupError: there is no answer yet.
        """
        if self.last is None:
            raise LookupError("there is no answer to rate yet")
        mark = Rating(
            interaction_id=self.last.interaction_id,
            user_id=self.user_id,
            rating=rating,
            thumbs=thumbs,
            reason=reason,
            source=SOURCE,
        )
        receipt = await asyncio.to_thread(self._feedback.rate, mark)
        await asyncio.to_thread(self.chat.reward, mark.interaction_id)
        return receipt

    async def undo(self) -> Undone | None:
        """Undo the last answer's mark; without one, remove its turn.

        Returns:
            What was undone; ``None`` if there is no answer.
        """
        if self.last is None:
            return None
        if self._compared is not None:
            pair, self._compared = self._compared, None
            if await asyncio.to_thread(
                self._feedback.uncompare,
                pair.first.interaction_id,
                pair.second.interaction_id,
                self.user_id,
            ):
                return "comparison"
        took_back = await asyncio.to_thread(
            self._feedback.unrate, self.last.interaction_id, self.user_id, source=SOURCE
        )
        if took_back is not None:
            return "rating"
        self._turns.pop()
        return "turn"

    async def history(self, n: int = 10) -> list[tuple[Interaction, Rating | None]]:
        """Return the user's last answers of this role with their marks, oldest first."""
        return await asyncio.to_thread(self._feedback.history, self.user_id, self.role, n)

    async def counts(self) -> FeedbackCounts:
        """Return the amount of feedback in the store, of all users, by role."""
        return await asyncio.to_thread(feedback_counts, self._feedback)

    async def rater_sentences(self) -> list[str]:
        """Return sentences that compare the store's raters."""
        return await asyncio.to_thread(rater_sentences, self._feedback)

    @property
    def _feedback(self) -> FeedbackStore:
        return self.chat.feedback

    async def _answered(self, question: str, on_text: TextCallback = len) -> Interaction:
        messages: list[ChatMessage] = []
        for earlier, answer in self._turns:
            messages.append(ChatMessage(role="user", content=earlier))
            messages.append(ChatMessage(role="assistant", content=answer.response))
        messages.append(ChatMessage(role="user", content=question))
        kept = trimmed(messages, int(self.chat.context_tokens * PROMPT_SHARE))
        prompt = ChatPrompt(
            messages=tuple(map(asdict, kept)),
            source=SOURCE,
            **fields_of(self, "role", "user_id", "conversation_id"),
        )
        prepared = await self.chat.prepare(prompt)
        return (await self.chat.write(prepared, on_text)).interaction


def trimmed(messages: list[ChatMessage], most_tokens: int) -> tuple[ChatMessage, ...]:
    """Return the last turns that fit, whole, and always the last message.

    Args:
        messages: Questions and answers in turn, the last one a question.
        most_tokens: Maximum tokens, estimated at ``BYTES_PER_TOKEN`` bytes each.
    """
    start = len(messages) - 1
    n = n_tokens(messages[start])
    while start >= 2:
        n += n_tokens(messages[start - 1]) + n_tokens(messages[start - 2])
        if n > most_tokens:
            break
        start -= 2
    return tuple(messages[start:])


def n_tokens(message: ChatMessage) -> int:
    """Return an estimate of a message's tokens."""
    n_bytes = len(message.content.encode("utf-8", "replace"))
    return TOKENS_PER_MESSAGE + -(-n_bytes // BYTES_PER_TOKEN)
