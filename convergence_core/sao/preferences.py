"""Comparisons, judgements in both orders, and the preferences that come of them.

The paper asks its judge in one order (§4.3). Here each pair is judged twice, each answer first once:

    l = (logit p12 + logit p21) / 2,    q = sigma(l)

with p12 = P(answer 1 better | shown first), p21 = P(answer 1 better | shown second). A bias that the
position adds to the log-odds cancels. A judge that tells no probability counts ``SAID`` for a verdict,
so that l passes ``LEAST_MARGIN`` exactly when both orders agree.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from convergence_core.records import canonical_json, sha256_hex

PairKind: TypeAlias = Literal["incumbent", "candidates"]
"""``incumbent``: both answers are the incumbent's; ``candidates``: of two candidates."""
Split: TypeAlias = Literal["train", "audit"]

LEAST_MARGIN: Final = math.log(0.7 / 0.3)
"""Least |l| of an exported pair: q >= .7 or q <= .3."""
SAID: Final = 0.75
"""Probability that a plain verdict stands for."""
EDGE: Final = 1e-4
"""Probabilities stay this far from 0 and 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer to a prompt."""

    text: str
    author: str
    """Id of the candidate that wrote it."""
    finish_reason: str | None = "stop"
    """As the provider told it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two answers to one prompt, not judged yet."""

    prompt: str
    first: Answer
    second: Answer
    kind: PairKind
    persona: int | None = None
    """Index of who asks; ``None``: the prompt was imported."""

    @property
    def pair_id(self) -> str:
        """Hash of kind, prompt and both answers in order, 24 hex digits."""
        return sha256_hex(
            canonical_json(
                [self.kind, self.prompt, *((a.author, a.text) for a in (self.first, self.second))]
            )
        )[:24]

    @property
    def log_length_ratio(self) -> float:
        """Return ln(length of the first / length of the second), in characters."""
        return math.log(max(1, len(self.first.text)) / max(1, len(self.second.text)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a judge said of a comparison in both orders."""

    p12: float
    """P(first is better), shown first."""
    p21: float
    """P(first is better), shown second."""
    estimator: str
    """How the probabilities were read; ``verdict``: from plain words."""

    @property
    def log_odds(self) -> float:
        """Return l, > 0 where the first is better."""
        return (logit(self.p12) + logit(self.p21)) / 2.0

    @property
    def q(self) -> float:
        """Return P(first is better) without the position's bias."""
        return sigmoid(self.log_odds)

    @property
    def bias(self) -> float:
        """Return how much being shown first adds to the log-odds."""
        return (logit(self.p12) - logit(self.p21)) / 2.0

    @property
    def agrees(self) -> bool:
        """Whether both orders name the same answer; a tie names none."""
        return (self.p12 - 0.5) * (self.p21 - 0.5) > 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """A judged comparison that passed all filters."""

    comparison: Comparison
    judgement: Judgement

    @property
    def chosen(self) -> Answer:
        """The better answer."""
        first_wins = self.judgement.log_odds > 0
        return self.comparison.first if first_wins else self.comparison.second

    @property
    def rejected(self) -> Answer:
        """The other answer."""
        first_wins = self.judgement.log_odds > 0
        return self.comparison.second if first_wins else self.comparison.first

    @property
    def margin(self) -> float:
        """Return |l|."""
        return abs(self.judgement.log_odds)


def logit(p: float) -> float:
    """Return log-odds of a probability, which is kept off 0 and 1."""
    p = min(1.0 - EDGE, max(EDGE, p))
    return math.log(p / (1.0 - p))


def sigmoid(x: float) -> float:
    """Return 1 / (1 + e^-x)."""
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))
