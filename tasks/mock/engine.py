"""Engine of the endpoints: answers and their tokens."""

from collections.abc import Sequence

from tasks.mock.prompt_text import PER_MESSAGE, PER_REQUEST, pieces
from tasks.mock.protocol import ModelRequest, TokenUsage, Written
from tasks.mock.responder import respond


class Engine:
    """Answers questions; safe to use from several threads.

    Args:
        varies: whether answers above temperature 0 and without a seed differ each time.
    """

    def __init__(self, *, varies: bool = False) -> None:
        self._varies = varies

    def first(self, request: ModelRequest, n: int, attempt: int) -> int:
        """Return the number of the first of ``n`` answers at this attempt."""
        again = self._varies and request.temperature > 0 and request.seed is None
        return n * (attempt - 1) if again else 0

    def choose(self, request: ModelRequest, n: int, *, attempt: int = 1) -> list[Written]:
        """Write ``n`` answers to this attempt at a request; attempts count from 1."""
        first = self.first(request, n, attempt)
        return [respond(request, first + index) for index in range(n)]

    def tokens(self, request: ModelRequest, choices: Sequence[Written]) -> TokenUsage:
        """Return what an answer is billed for."""
        prompt = [piece for m in request.messages for piece in (m.role, *pieces(m.text))]
        reasoning = sum(choice.n_reasoning for choice in choices)
        return TokenUsage(
            # The role is one of the four tokens that a message costs beside its text.
            prompt=len(prompt) + (PER_MESSAGE - 1) * len(request.messages) + PER_REQUEST,
            completion=sum(choice.n_tokens for choice in choices) + reasoning,
            reasoning=reasoning,
        )
