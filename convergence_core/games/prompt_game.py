"""Prompt game (G6): a persona's prompt, for what it adds to the pool.

Score: valid (0 or 1) times the gain of the pool's Vendi score, in effective texts. A prompt is valid if
it has 10 to 4,000 characters, repeats no prompt of the pool (word-Jaccard below .9) and shares no 13
words in a row with a held-out case.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np

from convergence_core.games.game import Facts, Feed, Scores, Turn, Turns
from convergence_core.judges.coverage.measures import WINDOW, vendi
from convergence_core.judges.texts import jaccard, word_set
from convergence_core.ports import Ask
from convergence_core.sao.filters import HeldOut

SHORTEST: Final = 10
LONGEST: Final = 4_000
"""Characters of a prompt."""
MOST_ALIKE: Final = 0.9
"""Word-Jaccard with a prompt of the pool from which on a prompt is a copy."""
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptGame:
    """G6: a prompt that the pool does not have yet.

    Raises:
        ValueError: there is no persona.
    """

    task: str
    """What prompts are about."""
    personas: tuple[str, ...]
    pool: tuple[str, ...] = ()
    """Prompts so far; the last ``WINDOW`` count."""
    held_out: HeldOut = field(default_factory=lambda: HeldOut(()))
    id: ClassVar[str] = "prompts"
    version: ClassVar[int] = 1
    roles: ClassVar[tuple[str, ...]] = ("author",)
    cost: ClassVar[Mapping[str, int]] = {"author": 1}
    feeds: ClassVar[Feed] = "prompts"
    grounded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.personas:
            raise ValueError("`personas` must hold a persona at least")

    def protocol(self, rng: np.random.Generator) -> Turns:
        """Ask a persona for one prompt, showing a few of the pool; there are no facts."""
        persona = self.personas[int(rng.integers(len(self.personas)))]
        n = min(_SHOWN, len(self.pool))
        shown = (
            [self.pool[int(i)] for i in rng.choice(len(self.pool), n, replace=False)] if n else []
        )
        listed = "\n".join(f"- {one}" for one in shown) or "- none yet"
        yield Ask(
            role="author",
            text=(
                f"{persona}\n\nWrite one prompt that this person would send to a system that does this: "
                f"{self.task}\nIt must differ from earlier ones such as:\n{listed}\nReply with the prompt "
                "alone."
            ),
        )
        return {}

    def score(self, turns: Sequence[Turn], facts: Facts) -> Scores:  # noqa: ARG002 - it has none
        """Return the Vendi gain of a valid prompt, else 0 with the reason."""
        prompt = turns[0].reply.strip()
        why = self._why_invalid(prompt)
        if why:
            return Scores(by_role={"author": 0.0}, reason=why)
        pool = self.pool[-WINDOW:]
        return Scores(by_role={"author": vendi((*pool, prompt)) - vendi(pool)})

    def _why_invalid(self, prompt: str) -> str:
        if not SHORTEST <= len(prompt) <= LONGEST:
            return f"a prompt must have {SHORTEST} to {LONGEST:,} characters"
        if _is_copy(prompt, self.pool):
            return "it repeats a prompt of the pool"
        return "it holds text of a held-out case" if self.held_out.asks(prompt) else ""


def _is_copy(prompt: str, pool: Iterable[str]) -> bool:
    words = word_set(prompt)
    return any(jaccard(words, word_set(one)) >= MOST_ALIKE for one in pool)
