"""Metrics of two adapters on held-out prompts, which inform and decide nothing.

Notation
    L       answers that people liked, to the prompts that have some
    nats    mean of -log p(token) over the tokens of a prompt's liked answers, ends included
    perplexity = exp(mean of nats over prompts)
    chrF    F_2 of character n-grams, n = 1 to 6 (Popovic 2015): precision and recall, each averaged over n
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import t as student_t

from convergence_core.feedback.held_out import LEVEL, HeldOutAnswer
from convergence_core.judges.text_features import hashed_ngrams, ngram_similarity
from convergence_core.records import Json, fields_of
from convergence_core.search.recommend import paired_difference

LONGEST_GRAM: Final = 6
BETA: Final = 2.0
"""Weight of recall against precision."""
FIRST_CHARACTERS: Final = 20_000
"""Of a text, which are compared."""
UNITS: Final[Mapping[str, str]] = {
    "perplexity": "per token of liked answers",
    "chrf": "0 to 1, of the nearest liked answer",
    "similarity": "0 to 1, of the nearest liked answer",
    "length": "words",
    "rating": "share of the scale, by the rater",
}
"""Metric → its unit, in the order of showing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutMetric:
    """One metric of the adapter in service and of a new one, as means over prompts."""

    name: str
    before: float
    """Of the one in service."""
    after: float
    """Of the new one."""
    change: float
    """After less before; of the perplexity, after divided by before."""
    low: float | None
    """Ends of the change's 95 % interval over prompts, paired. ``None`` if fewer than two prompts.
    """
    high: float | None
    n_prompts: int

    @property
    def unit(self) -> str:
        """What one is."""
        return UNITS[self.name]

    @property
    def change_words(self) -> str:
        """The change with its interval."""
        is_factor = self.name == "perplexity"
        form = "{:.3g}" if is_factor else "{:+.3g}"
        words = ("times " if is_factor else "") + form.format(self.change)
        if self.low is None or self.high is None:
            return words
        return f"{words} [{form.format(self.low)} to {form.format(self.high)}]"


def held_out_metrics(
    new: Sequence[HeldOutAnswer],
    old: Sequence[HeldOutAnswer],
    *,
    liked: Mapping[str, Sequence[str]],
    new_nats: Mapping[str, float],
    old_nats: Mapping[str, float],
) -> tuple[HeldOutMetric, ...]:
    """Return the computable metrics, in the order of ``UNITS``.

    Args:
        new: answers of the new adapter.
        old: of the one in service, to the same prompts.
        liked: prompt's key → answers to it that people liked; prompts without are left out.
        new_nats: prompt's key → mean of -log p over the tokens of its liked answers, by the new one.
        old_nats: by the one in service, of the same prompts.
    """
    vectors = {key: [hashed_ngrams(text) for text in texts] for key, texts in liked.items()}

    def nearest_chrf(answer: HeldOutAnswer) -> float | None:
        return max(
            (chrf(answer.text, text) for text in liked.get(answer.prompt_key, ())), default=None
        )

    def nearest(answer: HeldOutAnswer) -> float | None:
        liked_vectors, vector = vectors.get(answer.prompt_key, ()), hashed_ngrams(answer.text)
        return max((ngram_similarity(vector, other) for other in liked_vectors), default=None)

    of_answers: dict[str, Callable[[HeldOutAnswer], float | None]] = {
        "chrf": nearest_chrf,
        "similarity": nearest,
        "length": lambda answer: float(len(answer.text.split())),
        "rating": lambda answer: answer.reward,
    }
    pairs = {"perplexity": (old_nats, new_nats)} | {
        name: (_by_prompt(old, measure), _by_prompt(new, measure))
        for name, measure in of_answers.items()
    }
    metrics = (_metric(name, *pairs[name]) for name in UNITS)
    return tuple(metric for metric in metrics if metric is not None)


def metrics_json(metrics: Sequence[HeldOutMetric]) -> Json:
    """Return metrics as they are stored: name → numbers."""
    return {
        metric.name: fields_of(metric, "before", "after", "change", "low", "high", "n_prompts")
        for metric in metrics
    }


def metrics_of(stored: Json) -> tuple[HeldOutMetric, ...]:
    """Return metrics that were stored; those of unknown names are left out."""
    by_name = stored if isinstance(stored, dict) else {}
    return tuple(
        HeldOutMetric(name=name, **entry)  # type: ignore[arg-type]  # as they were stored
        for name in UNITS
        if isinstance(entry := by_name.get(name), dict)
    )


def chrf(text: str, reference: str) -> float:
    """Return the character n-gram F-score of a text, in [0, 1]; white space does not count.

    Orders that either text is too short for are left out. 0 where one of them has no characters.
    """
    a, b = ("".join(raw[:FIRST_CHARACTERS].split()) for raw in (text, reference))
    precisions, recalls = [], []
    for n in range(1, min(LONGEST_GRAM, len(a), len(b)) + 1):
        grams, reference_grams = _grams(a, n), _grams(b, n)
        n_common = (grams & reference_grams).total()
        precisions.append(n_common / grams.total())
        recalls.append(n_common / reference_grams.total())
    if not precisions:
        return 0.0
    precision, recall = float(np.mean(precisions)), float(np.mean(recalls))
    weighted = BETA**2 * precision + recall
    return (1 + BETA**2) * precision * recall / weighted if weighted else 0.0


def _grams(text: str, n: int) -> Counter[str]:
    return Counter(text[i : i + n] for i in range(len(text) - n + 1))


def _by_prompt(
    answers: Sequence[HeldOutAnswer], measure: Callable[[HeldOutAnswer], float | None]
) -> dict[str, float]:
    """Return prompt → mean of its answers that have a number."""
    by_prompt: dict[str, list[float]] = defaultdict(list)
    for answer in answers:
        value = measure(answer)
        if value is not None:
            by_prompt[answer.prompt_key].append(value)
    return {key: float(np.mean(values)) for key, values in by_prompt.items()}


def _metric(name: str, old: Mapping[str, float], new: Mapping[str, float]) -> HeldOutMetric | None:
    """Return one metric; ``None`` if no prompt has it, or a number is not finite."""
    keys = sorted(old.keys() & new.keys())
    before, after = (np.array([means[key] for key in keys]) for means in (old, new))
    if not keys or not np.isfinite([before, after]).all():
        return None
    change = after - before  # (n prompts,)
    mean, half = float(change.mean()), None
    if len(keys) > 1:
        error = float(change.std(ddof=1)) / math.sqrt(len(keys))
        half = float(student_t.ppf((1 + LEVEL) / 2, len(keys) - 1)) * error
    numbers = [float(before.mean()), float(after.mean()), mean]
    ends: list[float | None] = [None, None] if half is None else [mean - half, mean + half]
    if name == "rating" and half is not None:  # what the gate decides by: one interval of it
        gate = paired_difference(new, old)
        assert gate is not None  # noqa: S101 - there are prompts
        ends = [gate.low, gate.high]
    if name == "perplexity":  # of nats: differences become factors
        numbers = [_exp(number) for number in numbers]
        ends = [None if end is None else _exp(end) for end in ends]
    if not all(math.isfinite(number) for number in (*numbers, *ends) if number is not None):
        return None
    return HeldOutMetric(
        name=name, before=numbers[0], after=numbers[1], change=numbers[2],
        low=ends[0], high=ends[1], n_prompts=len(keys),
    )  # fmt: skip


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
