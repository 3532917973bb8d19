"""Seven filters in a fixed order, each with a counter.

A filter does not see what an earlier one dropped.

=====================  =============================================================
``incomplete``         1: a call failed, its answer could not be read, or is incomplete
``length``             2: an answer is shorter or longer, in characters, than allowed
``refusal``            3: an answer refuses, or holds a template's leftovers
``same_answers``       4: the answers are near duplicates of each other
``duplicate_prompt``   5: the prompt is a near duplicate of an earlier one
``contaminated``       6: prompt or answers share a run of 13 words with a held-out case
``margin``             7: the judge's verdicts differ between both orders
=====================  =============================================================

Filters 1 to 6 run before the judge, whose calls cost money, so the pairs they drop are not judged.
``quality_filter`` switches off 2 to 5; the others always run. The paper has no filters.
"""

import re
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, get_args

from convergence_core.config.optimization import SaoConfig
from convergence_core.judges.texts import WordRuns, jaccard, word_set, words_of
from convergence_core.sao.duplicates import ALIKE, Duplicates
from convergence_core.sao.preferences import LEAST_MARGIN, Comparison, JudgedPair

Filter: TypeAlias = Literal[
    "incomplete", "length", "refusal", "same_answers", "duplicate_prompt", "contaminated", "margin",
]  # fmt: skip
FILTERS: Final[tuple[Filter, ...]] = get_args(Filter)

MOST_CHARACTERS: Final = 4_000
"""Maximum characters of an answer."""
USUAL_SHORTEST: Final = 50
"""Minimum characters of an answer in sentences."""
N_RUN: Final = 13
"""Consecutive words that no synthetic text may share with a held-out case."""
N_SHORT: Final = 5
"""Minimum words of a held-out text below ``N_RUN`` words that prompts may not contain."""

_PATTERNS: Final = (
    r"\bas an? (?:ai|artificial intelligence|(?:large )?language model)\b",
    r"\bi(?:'|\u2019)?m (?:just |only )?an? (?:ai|language model)\b",
    r"\bi (?:can(?:'|\u2019)?t|cannot|can not|am unable to|won(?:'|\u2019)?t) "
    r"(?:help|assist|comply|fulfil|provide|answer|do that|continue)",
    r"\bi(?:'|\u2019)?m (?:sorry|afraid)[,.]? (?:but )?(?:i )?(?:can(?:'|\u2019)?t|cannot|am unable)",
    r"\buser prompt:",
    r"\[(?:insert|your|name|placeholder|fill in)\b[^\]]*\]",
    r"<(?:your|insert|placeholder|answer|response)\b[^>]*>",
    r"\{\{.*?\}\}",
    r"\blorem ipsum\b",
    r"\[\[(?:begin|end) [A-Z ]+ [0-9a-f]{16}\]\]",
)
REFUSAL: Final = re.compile("|".join(_PATTERNS), re.IGNORECASE | re.DOTALL)
"""Pattern of refusals, and of texts with unfilled placeholders."""


def shortest_answer(answers: Iterable[str]) -> int:
    """Return the minimum characters of an answer of this system.

    It is half of the length that nine in ten answers reach, at most ``USUAL_SHORTEST``; 1 without
    answers.
    """
    lengths = sorted(len(text) for text in answers if text.strip())
    if not lengths:
        return 1
    return max(1, min(USUAL_SHORTEST, lengths[len(lengths) // 10] // 2))


def held_out_runs(texts: Iterable[str]) -> WordRuns:
    """Return the runs of words of the held-out cases, which no synthetic text may share."""
    runs = WordRuns(N_RUN)
    for text in texts:
        is_short = N_SHORT <= len(words_of(text)) < N_RUN
        runs.add(text, whole=is_short)
    return runs


class FilterChain:
    """Filters of one round; used within it and never stored."""

    def __init__(
        self,
        settings: SaoConfig,
        held_out: WordRuns,
        known_prompts: Iterable[str] = (),
        *,
        answers: Iterable[str] = (),
    ) -> None:
        """Prepare the filters.

        Args:
            settings: Limits of the filters.
            held_out: Word runs that must not leak.
            known_prompts: Prompts of earlier rounds.
            answers: Earlier answers, which determine the minimum length.
        """
        self.counters: dict[Filter, int] = dict.fromkeys(FILTERS, 0)
        self._settings = settings
        self._least = shortest_answer(answers)
        self._held_out = held_out
        self._duplicates = Duplicates()
        self._is_new: dict[tuple[int | None, str], bool] = {}
        self._seen: set[str] = set()
        for prompt in dict.fromkeys(known_prompts):
            self._duplicates.add(prompt)

    def fail(self, n: int = 1) -> None:
        """Count pairs that were never complete: a call failed, or its answer was unreadable."""
        self.counters["incomplete"] += n

    def before_judging(self, comparison: Comparison) -> Filter | None:
        """Return the first of filters 1 to 6 that drops a comparison, counted, or ``None``."""
        return self._counted(self._first(comparison))

    def after_judging(self, pair: JudgedPair) -> Filter | None:
        """Return whether filter 7 drops a judged pair, counted."""
        return self._counted("margin" if abs(pair.judgement.log_odds) < LEAST_MARGIN else None)

    def _counted(self, filter_name: Filter | None) -> Filter | None:
        if filter_name is not None:
            self.counters[filter_name] += 1
        return filter_name

    def _first(self, comparison: Comparison) -> Filter | None:
        answers = (comparison.first, comparison.second)
        if not comparison.prompt.strip() or any(
            a.finish_reason != "stop" or not a.text.strip() for a in answers
        ):
            return "incomplete"
        filter_name = self._quality(comparison) if self._settings.quality_filter else None
        if filter_name is not None:
            return filter_name
        leaks = self._held_out.leak_into(comparison.prompt) or any(
            self._held_out.shares_run(a.text) for a in answers
        )
        return "contaminated" if leaks else None

    def _quality(self, comparison: Comparison) -> Filter | None:
        texts = (comparison.first.text, comparison.second.text)
        if not all(self._least <= len(text) <= MOST_CHARACTERS for text in texts):
            return "length"
        if any(REFUSAL.search(text) for text in texts):
            return "refusal"
        if jaccard(*map(word_set, texts)) >= ALIKE:
            return "same_answers"
        return None if self._is_new_prompt(comparison) else "duplicate_prompt"

    def _is_new_prompt(self, comparison: Comparison) -> bool:
        """Several pairs of one prompt are not duplicates of each other, but a repeated pair is."""
        if comparison.pair_id in self._seen:
            return False
        self._seen.add(comparison.pair_id)
        key = comparison.persona, comparison.prompt
        if key not in self._is_new:
            self._is_new[key] = self._duplicates.add(comparison.prompt)
        return self._is_new[key]
