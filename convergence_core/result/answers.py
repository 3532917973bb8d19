"""Answers of two candidates to the same test cases, side by side."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from convergence_core.records import Case, Role

_GIVEN_BY_US = re.compile(r"case-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseAnswer:
    """What a candidate answered to one case, and what that was worth."""

    text: str | None
    """Of its first repeat; ``None`` if not kept, or there was none."""
    reward: float | None
    """Mean over repeats, in [0, 1]; ``None`` if missing."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metric → mean over repeats, in the metric's unit."""
    latency_ms: float | None = None
    cost_usd: float | None = None
    """Price of the answer, whoever paid it; ``None`` if unknown."""
    n_repeats: int = 1
    error: str | None = None
    """Why there is no answer, or why it counts as a failure."""
    reasons: tuple[str, ...] = ()
    """What judges wrote of it."""
    recording_url: str | None = None
    """Where its first repeat can be watched; ``None`` means nowhere."""
    thinking: str | None = None
    """The model's thinking before ``text``; ``None`` if not kept, or none is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseAnswers:
    """One test case with the answers of two candidates, e.g. the default and the recommended."""

    case_id: str
    name: str = ""
    """As of ``case_names``; empty: a result of an earlier version."""
    role: Role
    """Cells that the answers are from: the same for both, where both have some of a role."""
    weight: float = 1.0
    input: str | None
    """``None`` if not kept."""
    expected: str | None = None
    """``None`` if not kept, or the case has none."""
    first: CaseAnswer | None
    """``None`` if it did not answer this case."""
    second: CaseAnswer | None

    @property
    def gap(self) -> float | None:
        """Reward of the second less that of the first; ``None`` means one of them is missing."""
        pair = [answer.reward for answer in (self.first, self.second) if answer is not None]
        known = [reward for reward in pair if reward is not None]
        return known[1] - known[0] if len(known) == 2 else None


def case_names(cases: Iterable[Case]) -> dict[str, str]:
    """Return case → its id where the user has given one, else its place, as in ``row 12``."""
    return {
        case.case_id: f"row {row}" if _GIVEN_BY_US.fullmatch(case.case_id) else case.case_id
        for row, case in enumerate(cases, 1)
    }


def worst_first(
    cases: Iterable[CaseAnswers], *, holdout_first: bool = False
) -> tuple[CaseAnswers, ...]:
    """Return cases by what the second loses against the first, then by its own reward.

    Args:
        cases: in any order.
        holdout_first: put held-out cases before all others.
    """

    def key(case: CaseAnswers) -> tuple[bool, float, float, str]:
        reward = None if case.second is None else case.second.reward
        return (
            holdout_first and case.role != "holdout",
            0.0 if case.gap is None else case.gap,
            2.0 if reward is None else reward,
            case.case_id,
        )

    return tuple(sorted(cases, key=key))
