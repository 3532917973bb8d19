"""The pool of hard prompts: written ones whose two answers the judge cannot tell apart.

They are where a judge says least, so they are what is asked for next: the writer is shown some of them in
each round. They are synthetic, and nobody knows a right answer, so they enter no score, unless an executed
check that needs none tells one answer right and the other wrong: then its verdict takes the place of the
judge's in the comparison of the candidates that wrote them. No reward is touched by either.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from convergence_core.sao.grounding import RIGHT, WRONG
from convergence_core.sao.preferences import Judgement
from convergence_core.sao.state import JudgedPair
from convergence_core.texts import fingerprint

MOST: Final = 200
"""Prompts in the pool: the newest."""
SHOWN: Final = 2
"""Prompts of the pool that the writer of a round is shown."""
CHECKED: Final = 0.9
"""Probability that an executed verdict stands for."""

Check: TypeAlias = Callable[[str], float | None]
"""Returns what executed checks say of an answer, in [0, 1]; ``None``: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardPool:
    """Hard prompts, oldest first."""

    prompts: tuple[str, ...] = ()

    @classmethod
    def of(cls, pairs: Sequence[JudgedPair]) -> "HardPool":
        """Return the pool of judged pairs; a prompt is in it once, at its last place.

        Frozen pairs are shown to nobody, and of a round that was aborted or raised an alarm of coverage
        nothing is believed.
        """
        found: dict[str, str] = {}
        for pair in pairs:
            if pair.is_hard and pair.teaches:
                prompt = pair.comparison.prompt
                found.pop(fingerprint(prompt), None)
                found[fingerprint(prompt)] = prompt
        return cls(prompts=tuple(found.values())[-MOST:])

    def __len__(self) -> int:
        """Return how many prompts are in it."""
        return len(self.prompts)

    def shown(self, round_number: int, n: int = SHOWN) -> tuple[str, ...]:
        """Return those that a round's writer is shown: the newest, and others in turn.

        Args:
            round_number: of all rounds of the system, from 0.
            n: how many.
        """
        newest, others = self.prompts[-1:], self.prompts[-2::-1]
        if not others:
            return newest
        turn = round_number * (n - 1)
        n_others = min(n - 1, len(others))
        return (*newest, *(others[(turn + k) % len(others)] for k in range(n_others)))


def grounded(pair: JudgedPair, check: Check | None) -> JudgedPair | None:
    """Return a hard pair with the verdict of executed checks; ``None``: they tell nothing.

    Args:
        pair: judged.
        check: of one answer; ``None``: nothing is executed without an expected answer.
    """
    if check is None or not pair.is_hard:
        return None
    first, second = (
        check(answer.text) for answer in (pair.comparison.first, pair.comparison.second)
    )
    if first is None or second is None:
        return None
    if first >= RIGHT and second <= WRONG:
        p = CHECKED
    elif second >= RIGHT and first <= WRONG:
        p = 1.0 - CHECKED
    else:
        return None
    return replace(pair, judgement=Judgement(p12=p, p21=p, estimator="executed"))
