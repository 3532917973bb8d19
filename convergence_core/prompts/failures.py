"""Observed answers of a prompt, and the categories of their failures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from convergence_core.judges.texts import normalized
from convergence_core.records import CATEGORIES, Category, Json

GOOD: Final = 0.995
"""Minimum reward of a correct answer."""
LONGEST_KEPT: Final = 600
"""Maximum stored characters of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One answer to a search case, with its reward."""

    case_id: str
    reward: float
    answer: str
    reason: str
    """Metrics, or the error, in words."""
    category: Category

    def to_json(self) -> list[Json]:
        """Return a JSON value from which ``from_json`` makes an equal one."""
        return [self.case_id, self.reward, self.answer, self.reason, self.category]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> "Observed":
        """Rebuild what ``to_json`` wrote."""
        case_id, reward, answer, reason, category = value
        return cls(case_id=case_id, reward=reward, answer=answer, reason=reason, category=category)


def category_of(reward: float, answer: str, expected: str | None, *, failed: bool) -> Category:
    """Return the category of an answer's failure.

    Args:
        reward: Reward in [0, 1].
        answer: Answer as text.
        expected: Expected answer as text; ``None`` if the case has none.
        failed: Whether there was no answer at all.
    """
    if reward >= GOOD:
        return "none"
    if failed:
        return "error"
    if not answer.strip():
        return "empty"
    if expected and f" {normalized(expected)} " in f" {normalized(answer)} ":
        return "format"  # it holds the right answer, but not in the required form
    return "partial" if reward > 0.0 else "wrong"


def main_category(observed: Sequence[Observed]) -> Category:
    """Return the category that loses most reward; ``none`` if none is lost."""
    lost = dict.fromkeys(CATEGORIES, 0.0)
    for observation in observed:
        lost[observation.category] += 1.0 - observation.reward
    worst = max(CATEGORIES, key=lambda name: (name != "none") * lost[name])
    return worst if lost[worst] > 0.0 else "none"


def merged(old: Sequence[Observed], new: Sequence[Observed], most: int) -> tuple[Observed, ...]:
    """Return the answers to remember for a prompt: the worst of each case, worst first."""
    by_case: dict[str, Observed] = {}
    for observation in (*old, *new):
        kept = by_case.get(observation.case_id)
        if kept is None or observation.reward < kept.reward:
            by_case[observation.case_id] = observation
    ranked = sorted(
        by_case.values(), key=lambda observation: (observation.reward, observation.case_id)
    )
    return tuple(ranked[:most])


def metric_reason(metrics: Mapping[str, float], error: str | None) -> str:
    """Return the reason for an answer's reward, in one line."""
    if error:
        return error.strip().splitlines()[0]
    return ", ".join(f"{name}={value:.3g}" for name, value in sorted(metrics.items()))
