"""Summary of written prompts: the winner's family, refusals, overfitting."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyEdge:
    """One edit between two texts of a family."""

    parameter: str
    generation: int
    operator: str
    category: str
    parent_id: str
    other_id: str | None
    """The second text of a merge."""
    text_id: str
    parent: str
    text: str
    diagnosis: str
    failures: tuple[str, ...]
    """Cases that the writer was shown."""
    n_shared: int
    """Search cases that both were asked."""
    effect: float | None
    """Mean difference of rewards on these; ``None`` if there are none."""
    effect_se: float | None
    fixed: int
    """Of these, cases that got better."""
    broken: int
    """Of these, cases that got worse."""

    def diff(self) -> tuple[str, ...]:
        """Return a unified diff of both texts, without its head."""
        before, after = self.parent.splitlines(), self.text.splitlines()
        return tuple([*difflib.unified_diff(before, after, lineterm="", n=1)][2:])


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReport:
    """What writing prompts came to."""

    writers: tuple[str, ...]
    n_written: int
    """Texts that a writer wrote."""
    n_kept: int
    n_over_budget: int = 0
    """Requests for a text that the budget refused."""
    refusals: Mapping[str, int] = field(default_factory=dict)
    """Verdict → texts that it refused."""
    cost_usd: float | None = None
    """``None`` if unknown."""
    family: tuple[FamilyEdge, ...] = ()
    """Edits from the given texts to the winner's, in their order."""
    gap: float | None = None
    """Winner's mean reward on search cases asked again minus that on held-out ones."""
    gap_defaults: float | None = None
    """The same of the defaults."""

    @property
    def sentence(self) -> str:
        """The one sentence: what was written, and what became of it."""
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
