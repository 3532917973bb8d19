"""Personas: one level of each of six factors, a million of them, walked without a repeat.

The paper samples about 200,000 collected personas (§4.1), whose licence forbids commercial use; a
grammar of our own lists needs none of them.

Notation: N, number of personas; s_0 = seed mod N; step, the first odd number from .618 N on that is
coprime to N. s_k = (s_0 + k step) mod N meets each persona once in N steps, and each level of each
factor equally often.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

FACTORS: Final = ("role", "domain", "goal", "constraint", "temperament", "experience")
GOLDEN: Final = 0.618


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """One persona."""

    index: int
    """In [0, N)."""
    levels: tuple[str, ...]
    """One of each of ``FACTORS``."""

    @property
    def text(self) -> str:
        """The persona as a sentence."""
        role, domain, goal, constraint, temperament, experience = self.levels
        article = "An" if role[0] in "aeiou" else "A"
        return (
            f"{article} {role} concerned with {domain}, {experience}, wants to {goal}; "
            f"{constraint}. In temper: {temperament}."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """Levels of the six factors."""

    version: str
    levels: tuple[tuple[str, ...], ...]
    """Per factor, in the order of ``FACTORS``."""

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> "Grammar":
        """Return the grammar that a file holds.

        Raises:
            ValueError: a factor is missing, empty, or names a level twice.
        """
        levels = []
        for name in FACTORS:
            found = data.get(name)
            if not isinstance(found, Sequence) or isinstance(found, str) or not found:
                raise ValueError(f"personas need a list of `{name}`")
            texts = tuple(str(level).strip() for level in found)
            if len(set(texts)) < len(texts) or not all(texts):
                raise ValueError(f"`{name}` must name each level once, and none empty")
            levels.append(texts)
        return cls(version=str(data.get("version", "")), levels=tuple(levels))

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

    def walk(self, seed: int, start: int, n: int) -> list[Persona]:
        """Return personas s_start … s_(start+n-1) of the walk.

        Args:
            seed: where it begins.
            start: steps taken already.
            n: personas wanted.
        """
        size, step = len(self), self.step
        return [self.persona((seed + k * step) % size) for k in range(start, start + n)]

    @property
    def step(self) -> int:
        """The stride of the walk."""
        size = len(self)
        step = math.ceil(GOLDEN * size) | 1
        while math.gcd(step, size) != 1:
            step += 2
        return step % size or 1
