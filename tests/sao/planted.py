"""A planted author, whose answers begin with a tag ``[[r17]]`` that names them."""

from dataclasses import dataclass

import numpy as np

from convergence_core.sao.preferences import Answer, Comparison, JudgedPair, Judgement

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

    def n_words(self, tag: int) -> int:
        return int(np.random.default_rng([self.seed, tag, 1]).integers(20, 90))

    def text(self, tag: int, n_words: int | None = None) -> str:
        rng = np.random.default_rng([self.seed, tag, 2])
        words = rng.choice(_FILLER, size=n_words or self.n_words(tag))
        return f"[[r{tag}]] " + " ".join(f"{word}{rng.integers(900)}" for word in words)


def comparison(author: Author, first: int, second: int, prompt: str | None = None) -> Comparison:
    """Return two tagged answers to one prompt."""
    return Comparison(
        prompt=prompt or f"Prompt of answers {first} and {second}, about nothing in particular",
        first=Answer(text=author.text(first), author=f"c{first % 7}"),
        second=Answer(text=author.text(second), author=f"c{second % 7}"),
        kind="incumbent",
        persona=first,
    )


def judged(comparison: Comparison, p12: float, p21: float) -> JudgedPair:
    """Return a judged pair that is kept."""
    judgement = Judgement(p12=p12, p21=p21)
    return JudgedPair(
        comparison=comparison, judgement=judgement, dropped_by=None, round_number=0, position=0
    )
