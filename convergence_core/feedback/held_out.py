"""Comparison of a new adapter with the old one, by answers to held-out prompts.

Rules judge the form of an answer without a judge: not empty, readable, without a loop.
"""

import math
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
from scipy.stats import t as student_t

from convergence_core.records import Estimate
from convergence_core.search.recommend import mean_interval, paired_difference

LEVEL: Final = 0.95
LONGEST_PERIOD: Final = 20
"""Maximum words of a phrase whose repetition counts as a loop."""
MAX_PHRASE_REPEATS: Final = 4
"""Maximum immediate repetitions of a phrase, which must cover at least eight words."""
FIRST_WORDS: Final = 4_000
"""Number of leading words that are checked."""
LONGEST_RUN: Final = 100
"""Maximum run of one character; rules in tables and code are shorter."""
MOST_STRANGE: Final = 0.05
"""Maximum share of unreadable characters in an answer."""
_STRANGE: Final = frozenset({"Cc", "Cn", "Co", "Cs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutAnswer:
    """One sampled answer to a held-out prompt."""

    prompt_key: str
    text: str
    reward: float | None = None
    """Its rating as a share of the scale, in [0, 1]. ``None`` without a rater."""
    log_ratio: float | None = None
    """For a new adapter's answer: its log-likelihood by the new adapter less that by the active
    one, nats.
    """

    @property
    def divergence(self) -> float | None:
        """Estimate k3 of the divergence from this answer (Schulman 2020).

        It is ``exp(-r) - 1 + r`` for log-ratio r: unbiased like r, and never negative.
        """
        if self.log_ratio is None:
            return None
        return math.expm1(min(700.0, -self.log_ratio)) + self.log_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutComparison:
    """Comparison of two adapters' answers to the same prompts."""

    n_prompts: int
    kl_nats: Estimate | None
    """Kullback-Leibler divergence of the new adapter from the old one, nats per answer: the mean
    ``divergence`` of the new adapter's answers. ``None`` if not measured.
    """
    well_formed: Estimate | None
    """Share of well-formed answers of the new adapter."""
    reward_difference: Estimate | None
    """New less old reward, paired by prompt, as a share of the scale. ``None`` if not rated."""


def compare_held_out(
    new: Sequence[HeldOutAnswer], old: Sequence[HeldOutAnswer]
) -> HeldOutComparison:
    """Compare two adapters; intervals count prompts, not answers.

    Args:
        new: Answers of the new adapter; several to a prompt count as their mean.
        old: Answers of the active adapter.

    Raises:
        ValueError: an adapter has no answers, or the prompts differ.
    """
    prompts = {answer.prompt_key for answer in new}
    if not prompts or prompts != {answer.prompt_key for answer in old}:
        raise ValueError("both must have answered the same prompts, at least one")
    well_formed = mean_interval(
        {str(k): float(form_fault(answer.text) is None) for k, answer in enumerate(new)},
        groups={str(k): answer.prompt_key for k, answer in enumerate(new)},
    )
    rewards, before = _means(new, "reward"), _means(old, "reward")
    return HeldOutComparison(
        n_prompts=len(prompts),
        kl_nats=mean_with_t(list(_means(new, "divergence").values())),
        well_formed=well_formed,
        reward_difference=paired_difference(rewards, before) if rewards and before else None,
    )


def form_fault(text: str) -> str | None:
    """Return the fault in an answer's form; ``None`` if it has none."""
    if not text.strip():
        return "empty"
    if sum(map(_is_strange, text)) > MOST_STRANGE * len(text):
        return "unreadable"
    runs = (sum(1 for _ in run) for character, run in groupby(text) if not character.isspace())
    if is_in_loop(text.split()[:FIRST_WORDS]) or max(runs, default=0) > LONGEST_RUN:
        return "in a loop"
    return None


def is_in_loop(words: Sequence[str]) -> bool:
    """Return whether a phrase repeats more than ``MAX_PHRASE_REPEATS`` times in a row."""
    for period in range(1, LONGEST_PERIOD + 1):
        least = max(period * MAX_PHRASE_REPEATS, 8)
        n = 0
        for word, before in zip(words[period:], words, strict=False):
            n = n + 1 if word == before else 0
            if n >= least:
                return True
    return False


def _is_strange(character: str) -> bool:
    if character == "\N{REPLACEMENT CHARACTER}":
        return True
    return character not in "\n\r\t" and unicodedata.category(character) in _STRANGE


def _means(answers: Sequence[HeldOutAnswer], name: str) -> dict[str, float]:
    """Return prompt → mean of a field; empty unless every answer has it."""
    by_prompt: dict[str, list[float]] = defaultdict(list)
    for answer in answers:
        value = getattr(answer, name)
        if value is None:
            return {}
        by_prompt[answer.prompt_key].append(float(value))
    return {key: sum(values) / len(values) for key, values in by_prompt.items()}


def mean_with_t(values: Sequence[float]) -> Estimate | None:
    """Return the mean of values that are never negative, with Student's interval.

    ``None``: fewer than two values, or one is not finite.
    """
    n = len(values)
    if n < 2 or not all(map(math.isfinite, values)):
        return None
    mean, sd = float(np.mean(values)), float(np.std(values, ddof=1))
    half = float(student_t.ppf((1 + LEVEL) / 2, n - 1)) * sd / math.sqrt(n)
    return Estimate(mean=mean, low=max(0.0, mean - half), high=mean + half, level=LEVEL, n_cases=n)
