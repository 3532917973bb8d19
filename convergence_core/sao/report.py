"""Summary of a run's preferences for people."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePair:
    """One kept pair."""

    prompt: str
    chosen: str
    rejected: str
    q: float
    """Probability that the chosen answer is better, by the judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceRound:
    """One round."""

    generation: int
    """Generation that followed it."""
    n_prompts: int
    """Prompts requested."""
    n_pairs: int
    """Pairs of answers."""
    n_kept: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Filter → pairs that it dropped."""
    agreement: float | None = None
    """Share of pairs on which both orders agree."""
    accuracy: float | None = None
    """Accuracy of the judge on grounded items; ``None`` without items."""
    n_items: int = 0
    trust: float = 0.0
    is_enabled: bool = False
    """Whether trust is high enough to use the judge."""
    lower_bound: float | None = None
    """10 % quantile of the judge's accuracy over all audits, which determines trust; ``None``
    without an audit.
    """
    n_missing: int = 0
    """Number of distinct grounded items still needed for a verdict on the judge."""
    note: str | None = None
    """Why it was aborted or ended the rounds; ``None`` if it did neither."""

    @property
    def why_disbelieved(self) -> str | None:
        """Why the judge is not trusted after the round; ``None`` if it is."""
        if self.lower_bound is None:
            return "no grounded item was judged"
        if self.n_missing:
            return f"trust in the judge is unknown: {missing(self.n_missing)}"
        return (
            None if self.is_enabled else f"the judge is disabled, with a trust of {self.trust:.2f}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceReport:
    """Preferences of a run."""

    rounds: tuple[PreferenceRound, ...] = ()
    sample: SamplePair | None = None
    """Newest kept pair of the training split."""
    n_total: int = 0
    """Number of kept pairs of the system in this store, including earlier runs."""
    n_variants: int = 0
    """Number of prompts distilled for parameters with `mutate`."""
    n_proposed: int = 0
    """Number of evaluated candidates that preferences proposed."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Why prompts, answers and judgements failed → count."""

    @property
    def n_kept(self) -> int:
        """Pairs kept in this run."""
        return sum(each.n_kept for each in self.rounds)

    @property
    def dropped(self) -> dict[str, int]:
        """Filter → pairs dropped in this run; filters that dropped none are absent."""
        total: Counter[str] = Counter()
        for each in self.rounds:
            total.update(each.dropped)
        return {name: n for name, n in total.items() if n}

    @property
    def sentence(self) -> str:
        """The effect of the data in one sentence."""
        effects = []
        if self.n_variants:
            prompts = "prompt" if self.n_variants == 1 else "prompts"
            effects.append(
                f"{self.n_variants} {prompts} distilled from kept pairs joined the search space"
            )
        if self.n_proposed:
            proposed = "candidate" if self.n_proposed == 1 else "candidates"
            effects.append(f"{self.n_proposed} proposed {proposed} evaluated")
        if effects:
            return f"Preferences entered the search, and no reward: {'; '.join(effects)}."
        if not self.n_kept:
            return "Preferences changed nothing: no pair was kept."
        why = self.rounds[-1].why_disbelieved or "no prompt was distilled from them"
        return (
            f"Preferences did not change the search: {why}. "
            f"{self.n_kept:,} kept {'pair is' if self.n_kept == 1 else 'pairs are'} in the store."
        )


def missing(n: int) -> str:
    """Return the number of items still needed for a verdict on a judge, in words."""
    # It imports NumPy, which reports of runs without preferences do not need.
    from convergence_core.judges.trust import LEAST_ITEMS  # noqa: PLC0415

    return (
        f"{LEAST_ITEMS} different grounded items are required, {n} more than so far "
        "(`society.sao.audit_items` of them in a round)"
    )
