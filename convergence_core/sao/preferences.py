"""Comparisons, judgements in both orders, and judged pairs.

The paper asks its judge in one order (§4.3). Here each pair is judged twice, each answer first once:

    l = (logit p12 + logit p21) / 2,    q = sigma(l)

with p12 = P(answer 1 better | shown first), p21 = P(answer 1 better | shown second). A verdict counts
``VERDICT_PROBABILITY``, so that l passes ``LEAST_MARGIN`` exactly when both orders agree; a bias for the position
cancels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from convergence_core.judges.texts import normalized
from convergence_core.records import canonical_json, sha256_hex

PairKind: TypeAlias = Literal["incumbent", "candidates"]
"""``incumbent``: both answers come from the incumbent; ``candidates``: from two candidates."""
Split: TypeAlias = Literal["train", "audit"]
"""``audit`` is the fixed tenth of all prompts."""
N_SPLITS: Final = 10
ABORTED: Final = "aborted"
"""Reason that drops all pairs of a round with an untrustworthy judge."""

LEAST_MARGIN: Final = math.log(0.7 / 0.3)
"""Minimum absolute log-odds of an exported pair: q >= .7 or q <= .3."""
VERDICT_PROBABILITY: Final = 0.75
"""Probability assigned to a verdict."""
EDGE: Final = 1e-4
"""Minimum distance of probabilities from 0 and 1."""
LEAST_AGREEMENT: Final = 0.5
"""Minimum share of pairs on which both orders agree; below it, a round is aborted."""
LEAST_TO_ABORT: Final = 10
"""Minimum pairs for aborting a round."""
MOST_PAIRS: Final = 200
"""Maximum pairs for the share: the latest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer to a prompt."""

    text: str
    author: str
    """Id of the candidate that wrote it."""
    finish_reason: str | None = "stop"
    """Finish reason as the provider reported it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two answers to one prompt before the judgement."""

    prompt: str
    first: Answer
    second: Answer
    kind: PairKind
    persona: int | None = None
    """Index of the persona that asks; ``None`` for a test case."""

    @property
    def pair_id(self) -> str:
        """Hash of kind, prompt and both answers in order, 24 hex digits."""
        return sha256_hex(
            canonical_json(
                [self.kind, self.prompt, *((a.author, a.text) for a in (self.first, self.second))]
            )
        )[:24]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Judgement of a comparison in both orders."""

    p12: float
    """P(first is better) if shown first."""
    p21: float
    """P(first is better) if shown second."""

    @classmethod
    def of_verdicts(cls, shown_first: bool, shown_second: bool) -> "Judgement":
        """Return the judgement of two verdicts.

        Args:
            shown_first: whether the first answer was chosen when it was shown first.
            shown_second: whether it was chosen when it was shown second.
        """
        p = (1.0 - VERDICT_PROBABILITY, VERDICT_PROBABILITY)
        return cls(p12=p[shown_first], p21=p[shown_second])

    @property
    def log_odds(self) -> float:
        """Return l, > 0 if the first answer is better."""
        return (logit(self.p12) + logit(self.p21)) / 2.0

    @property
    def q(self) -> float:
        """Return P(first is better) without position bias."""
        return sigmoid(self.log_odds)

    @property
    def agrees(self) -> bool:
        """Whether both orders prefer the same answer; false for a tie."""
        return (self.p12 - 0.5) * (self.p21 - 0.5) > 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPair:
    """Judged comparison; a preference if it was kept."""

    comparison: Comparison
    judgement: Judgement
    dropped_by: str | None
    """``margin`` or ``aborted``; ``None`` if kept."""
    round_number: int
    """Round of the run, from 0."""
    position: int
    """Position in the round."""

    @property
    def split(self) -> Split:
        """Split of its prompt; ``audit`` prompts are never trained on, fitted to or shown."""
        return split_of(self.comparison.prompt)

    @property
    def is_kept(self) -> bool:
        """Whether all filters kept it."""
        return self.dropped_by is None

    @property
    def chosen(self) -> Answer:
        """Answer that the judge prefers."""
        c = self.comparison
        return c.first if self.judgement.log_odds > 0 else c.second

    @property
    def rejected(self) -> Answer:
        """Answer that the judge does not prefer."""
        c = self.comparison
        return c.second if self.judgement.log_odds > 0 else c.first


def agreement_of(judged: Sequence[JudgedPair]) -> float | None:
    """Return the share of the latest pairs on which both orders agree; ``None`` without pairs."""
    last = judged[-MOST_PAIRS:]
    return sum(pair.judgement.agrees for pair in last) / len(last) if last else None


def abort_reason(judged: Sequence[JudgedPair]) -> str | None:
    """Return why a round is aborted after these judgements; ``None`` if it is not."""
    n, share = min(len(judged), MOST_PAIRS), agreement_of(judged)
    if share is None or n < LEAST_TO_ABORT or share >= LEAST_AGREEMENT:
        return None
    return (
        f"the judge agrees with itself on {100 * share:.0f} % of {n} pairs "
        f"in both orders, less than {100 * LEAST_AGREEMENT:.0f} %"
    )


def split_of(prompt: str) -> Split:
    """Return the split of a prompt, which depends only on its words and so never changes."""
    return "audit" if int(sha256_hex(normalized(prompt))[:8], 16) % N_SPLITS == 0 else "train"


def logit(p: float) -> float:
    """Return the log-odds of a probability clipped away from 0 and 1."""
    p = min(1.0 - EDGE, max(EDGE, p))
    return math.log(p / (1.0 - p))


def sigmoid(x: float) -> float:
    """Return 1 / (1 + e^-x)."""
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))
