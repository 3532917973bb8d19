"""A planted author and a planted judge: every answer has a quality, every judge its faults.

An answer begins with a tag ``[[r17]]`` that names it. Its quality z ~ N(0, 1) and its length belong to
the tag. The judge says P(first is better) = sigma(1.5 dz + delta + lambda dln(length) + noise).
"""

from dataclasses import dataclass

import numpy as np

from convergence_core.sao.preferences import (
    Answer,
    Comparison,
    JudgedPair,
    Judgement,
    sigmoid,
)

KAPPA = 1.5
_FILLER = [
    *(
        "tax",
        "river",
        "copper",
        "evening",
        "ledger",
        "window",
        "mild",
        "orbit",
        "parcel",
        "garden",
    ),
    *("signal", "harvest", "bridge", "violet", "engine", "quiet", "market", "silver", "lantern"),
    *("thunder", "walnut", "meadow", "anchor", "basket", "circle", "dragon"),
]


@dataclass(frozen=True)
class Author:
    """Qualities of tagged answers."""

    seed: int = 0
    quality_of_length: float = 0.0
    """What a length times e adds to the quality."""

    def quality(self, tag: int) -> float:
        rng = np.random.default_rng([self.seed, tag])
        return float(rng.normal()) + self.quality_of_length * (self.n_words(tag) / 40 - 1)

    def n_words(self, tag: int) -> int:
        return int(np.random.default_rng([self.seed, tag, 1]).integers(20, 90))

    def text(self, tag: int, n_words: int | None = None) -> str:
        rng = np.random.default_rng([self.seed, tag, 2])
        words = rng.choice(_FILLER, size=n_words or self.n_words(tag))
        return f"[[r{tag}]] " + " ".join(f"{word}{rng.integers(900)}" for word in words)


@dataclass(frozen=True)
class Judge:
    """How a judge goes wrong."""

    delta: float = 0.0
    length: float = 0.0
    noise: float = 0.0

    def p_first(self, dz: float, dlog: float, rng: np.random.Generator) -> float:
        """Return P(the answer shown first is better)."""
        return sigmoid(
            KAPPA * dz + self.delta + self.length * dlog + self.noise * float(rng.normal())
        )

    def judge(self, dz: float, dlog: float, rng: np.random.Generator) -> Judgement:
        """Return what it says of a pair in both orders."""
        return Judgement(
            p12=self.p_first(dz, dlog, rng),
            p21=1.0 - self.p_first(-dz, -dlog, rng),
            estimator="planted",
        )


def comparison(author: Author, first: int, second: int, prompt: str | None = None) -> Comparison:
    """Return two tagged answers to one prompt."""
    return Comparison(
        prompt=prompt or f"Prompt of answers {first} and {second}, about nothing in particular",
        first=Answer(text=author.text(first), author=f"c{first % 7}"),
        second=Answer(text=author.text(second), author=f"c{second % 7}"),
        kind="incumbent",
        persona=first,
    )


def judged(comparison: Comparison, p12: float | Judgement, p21: float = 0.5) -> JudgedPair:
    """Return a pair that a judge has said this of, and that is kept."""
    said = p12
    if not isinstance(said, Judgement):
        said = Judgement(p12=said, p21=p21, estimator="x")
    return JudgedPair(
        comparison=comparison, judgement=said, dropped_by=None, round_number=0, position=0
    )
