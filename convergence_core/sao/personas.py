"""Personas: one level of each of six factors, walked without a repeat.

The paper samples about 200,000 collected personas (§4.1), whose licence forbids commercial use; a
grammar of our own lists needs none of them.

Notation: N, number of personas; s_0 = seed mod N; step, the first odd number from .618 N on that is
coprime to N. s_k = (s_0 + k step) mod N meets each persona once in N steps, and each level of each
factor equally often.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

FACTORS: Final = ("role", "domain", "goal", "constraint", "temperament", "experience")
GOLDEN: Final = 0.618
_PHRASES: Final = {
    "role": "{article} {} concerned with",
    "domain": "{},",
    "experience": "{}, wants to",
    "goal": "{};",
    "constraint": "{}.",
    "temperament": "In temper: {}.",
}
"""Factor → its sentence in a persona, in order."""

ASPECTS: Final = (
    "the everyday use", "the first steps", "an unusual case", "the limits", "the rules and exceptions",
    "a mistake in the use", "the choice between two ways", "the wording", "the numbers", "the deadlines",
    "the costs", "the quality", "a complaint about results", "an urgent case", "the details", "the purpose",
)  # fmt: skip
"""Aspects of a task that a persona may care about; as many as the grammar has domains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """One persona."""

    index: int
    """In [0, N)."""
    levels: tuple[str, ...]
    """One level of each of ``FACTORS``."""

    @property
    def text(self) -> str:
        """The persona as a sentence."""
        level_of = dict(zip(FACTORS, self.levels, strict=True))
        return " ".join(phrase(factor, level_of[factor]) for factor in _PHRASES)


def phrase(factor: str, level: str) -> str:
    """Return the part of a persona's sentence for a level; no word spans two parts."""
    article = "An" if level[0] in "aeiou" else "A"
    return _PHRASES[factor].format(level, article=article)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """Levels of the six factors."""

    levels: tuple[tuple[str, ...], ...]
    """Levels of each factor, in the order of ``FACTORS``."""

    @classmethod
    def from_mapping(cls, data: Mapping[str, Sequence[str]]) -> "Grammar":
        """Return the grammar in a file, a list of levels for each factor."""
        return cls(levels=tuple(tuple(data[name]) for name in FACTORS))

    def about(self, task: str) -> "Grammar":
        """Return the grammar with domains from a task; unchanged if the task is empty.

        The number of domains stays, so that a persona has the same index in both.
        """
        if not task:
            return self
        at = FACTORS.index("domain")
        n = len(self.levels[at])
        domains = tuple(f"{ASPECTS[k % len(ASPECTS)]} of this: {task}" for k in range(n))
        return Grammar(levels=(*self.levels[:at], domains, *self.levels[at + 1 :]))

    def __len__(self) -> int:
        """Return N."""
        return math.prod(len(texts) for texts in self.levels)

    def persona(self, index: int) -> Persona:
        """Return a persona by its index in mixed radix, the first factor lowest.

        Raises:
            IndexError: the index lies outside of [0, N).
        """
        if not 0 <= index < len(self):
            raise IndexError(f"there are {len(self)} personas, but no number {index}")
        rest, chosen = index, []
        for texts in self.levels:
            rest, place = divmod(rest, len(texts))
            chosen.append(texts[place])
        return Persona(index=index, levels=tuple(chosen))

    def walk(self, seed: int, start: int, n: int) -> np.ndarray:
        """Return the indices s_start … s_(start+n-1) of the walk, (n,).

        Args:
            seed: Start of the walk.
            start: Number of earlier steps.
            n: Number of personas.
        """
        size = len(self)
        # Remainders first, so that no product passes 64 bits.
        begin = (seed + start * self.step) % size
        return (begin + np.arange(n, dtype=np.int64) * self.step) % size

    @property
    def step(self) -> int:
        """The stride of the walk."""
        size = len(self)
        step = math.ceil(GOLDEN * size) | 1
        while math.gcd(step, size) != 1:
            step += 2
        return step % size or 1
