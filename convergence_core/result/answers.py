"""Answers of two candidates to the same test cases, side by side."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from convergence_core.records import Case, Role

_GIVEN_BY_US = re.compile(r"case-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseAnswer:
    """Answer of a candidate to one case, with its reward."""

    text: str | None
    """Answer of the first repeat; ``None`` if it is not stored or missing."""
    reward: float | None
    """Mean over repeats, in [0, 1]; ``None`` if missing."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metric → mean over repeats, in the metric's unit."""
    latency_ms: float | None = None
    cost_usd: float | None = None
    """Price of the answer, even if another run paid it; ``None`` if unknown."""
    n_repeats: int = 1
    error: str | None = None
    """Why there is no answer, or why it counts as a failure."""
    reasons: tuple[str, ...] = ()
    """Explanations by judges."""
    recording_url: str | None = None
    """Recording of the first repeat; ``None`` if there is none."""
    thinking: str | None = None
    """Model's reasoning before ``text``; ``None`` if it is not stored or missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseAnswers:
    """Test case with the answers of two candidates, for example default and recommended."""

    case_id: str
    name: str = ""
    """Name from ``case_names``; empty in results of earlier versions."""
    role: Role
    """Role of the cells, the same for both candidates if both have cells of that role."""
    weight: float = 1.0
    input: str | None
    """Input of the case; ``None`` if it is not stored."""
    expected: str | None = None
    """Expected answer; ``None`` if it is not stored or the case has none."""
    first: CaseAnswer | None
    """``None`` without an answer to this case."""
    second: CaseAnswer | None

    @property
    def gap(self) -> float | None:
        """Reward of the second answer minus the first; ``None`` if one is missing."""
        pair = [answer.reward for answer in (self.first, self.second) if answer is not None]
        known = [reward for reward in pair if reward is not None]
        return known[1] - known[0] if len(known) == 2 else None


def case_names(cases: Iterable[Case]) -> dict[str, str]:
    """Return case → its id if you set one, else its position, such as ``row 12``."""
    return {
        case.case_id: f"row {row}" if _GIVEN_BY_US.fullmatch(case.case_id) else case.case_id
        for row, case in enumerate(cases, 1)
    }


def worst_first(
    cases: Iterable[CaseAnswers], *, holdout_first: bool = False
) -> tuple[CaseAnswers, ...]:
    """Return cases by increasing gap, then by the second candidate's reward.

    Args:
        cases: Cases in any order.
        holdout_first: Whether held-out cases come first.
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
