"""Summary of written prompts: the winner's family, rejections, overfitting."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyEdge:
    """One edit between two prompts of a family."""

    parameter: str
    generation: int
    operator: str
    category: str
    parent_id: str
    other_id: str | None
    """The second parent of a merge."""
    text_id: str
    parent: str
    text: str
    diagnosis: str
    failures: tuple[str, ...]
    """Cases in the writer's request."""
    n_shared: int
    """Number of search cases evaluated with both."""
    effect: float | None
    """Mean difference of rewards on these cases; ``None`` without any."""
    effect_se: float | None
    fixed: int
    """Number of these cases that improved."""
    broken: int
    """Number of these cases that worsened."""

    def diff(self) -> tuple[str, ...]:
        """Return a unified diff of both prompts, without its header."""
        before, after = self.parent.splitlines(), self.text.splitlines()
        return tuple([*difflib.unified_diff(before, after, lineterm="", n=1)][2:])


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReport:
    """Results of prompt writing."""

    writers: tuple[str, ...]
    n_written: int
    """Number of written prompts."""
    n_kept: int
    n_over_budget: int = 0
    """Number of requests refused by the budget."""
    refusals: Mapping[str, int] = field(default_factory=dict)
    """Verdict → number of prompts that it rejected."""
    cost_usd: float | None = None
    """``None`` if unknown."""
    family: tuple[FamilyEdge, ...] = ()
    """Edits from a given prompt to the winner's, in order."""
    gap: float | None = None
    """Winner's mean reward on repeated search cases minus that on held-out ones."""
    gap_defaults: float | None = None
    """The same difference for the defaults."""

    @property
    def sentence(self) -> str:
        """Sentence with the numbers of prompts and the winner's edits."""
        if not self.n_written:
            return "No prompt was written."
        kept = f"{self.n_written:,} {'prompt' if self.n_written == 1 else 'prompts'} written, {self.n_kept:,} new"
        if not self.family:
            return f"{kept}; the recommended settings have none of them."
        n = len(self.family)
        edits = "one edit" if n == 1 else f"{n} edits"
        return f"{kept}; the recommended one is {edits} away from a given prompt."

    @property
    def overfitting(self) -> str | None:
        """Return the sentence on overfitting to the search cases; ``None`` without a measurement."""
        if self.gap is None:
            return None
        text = f"Search minus held-out score: {_signed(self.gap)}"
        if self.gap_defaults is not None:
            text += f" (defaults {_signed(self.gap_defaults)})"
        return f"{text}. A larger difference than the defaults' shows overfitting to the search cases."


def _signed(gap: float) -> str:
    return f"{gap:+.3f}".replace("-", "\N{MINUS SIGN}")
