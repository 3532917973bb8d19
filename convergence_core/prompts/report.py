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
    """Mean difference of rewards on these; ``None``: there are none."""
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
    """``None``: unknown."""
    family: tuple[FamilyEdge, ...] = ()
    """Edits from the given texts to the winner's, in their order."""
    gap: float | None = None
    """Winner's mean reward on search cases asked again minus that on held-out ones."""
    gap_defaults: float | None = None
    """The same of the defaults."""
    chooser: str = ""
    """Who chose the edits and why, in sentences."""

    @property
    def sentence(self) -> str:
        """The one sentence: what was written, and what became of it."""
        if not self.n_written:
            return "No text was written."
        kept = f"{self.n_kept:,} of {self.n_written:,} written texts joined the search space"
        if not self.family:
            return f"{kept}; the recommended configuration has none of them."
        n = len(self.family)
        edits = "one edit" if n == 1 else f"{n} edits"
        return f"{kept}; the recommended one is {edits} away from a given text."

    @property
    def overfitting(self) -> str | None:
        """What is said of overfitting to the search cases; ``None``: nothing is known."""
        if self.gap is None:
            return None
        text = (
            f"Overfitting: the recommended configuration scores {self.gap:+.3f} on search cases, asked "
            "again, against held-out ones"
        )
        if self.gap_defaults is not None:
            text += f"; the defaults {self.gap_defaults:+.3f}"
        return f"{text}. What is above the defaults' was learned from the search cases alone."
