"""What preferences came to in a run, for people; one honest sentence among the numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePair:
    """One kept pair."""

    prompt: str
    chosen: str
    rejected: str
    q: float
    """Probability that the chosen one is better, by the judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceRound:
    """One round."""

    generation: int
    """Before which it was played."""
    n_prompts: int
    """Prompts that were asked for."""
    n_pairs: int
    """Pairs of answers that came to be."""
    n_kept: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Filter → pairs that it dropped."""
    agreement: float | None = None
    """Share of pairs on which both orders agree."""
    position: float | None = None
    """What being shown first adds to the log-odds; ``None``: fewer than 100 pairs."""
    length: float | None = None
    """What a length times e adds to them; ``None``: as above."""
    length_correlation: float | None = None
    accuracy: float | None = None
    """Of the judge on grounded items; ``None``: there were none."""
    n_items: int = 0
    log_score: float | None = None
    calibration_error: float | None = None
    correlation: tuple[float, float, float] | None = None
    """Spearman's rho of judge and truth, and its 95 % interval."""
    trust: float = 0.0
    weight: float = 0.0
    """Of the judge in the draws after it."""
    vendi: float | None = None
    distinct_2: float | None = None
    duplicates: float | None = None
    held_out: float | None = None
    evaluated: float | None = None
    """Share of the grid of configurations that was evaluated."""
    proposed: float | None = None
    """Share of it that was compared."""
    note: str | None = None
    """Why it was aborted, alarmed or ended the rounds; ``None``: it went well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceReport:
    """Preferences of a run."""

    estimator: str | None
    """Where judgements came from."""
    rounds: tuple[PreferenceRound, ...] = ()
    sample: SamplePair | None = None
    """The newest kept pair of the training split."""
    n_total: int = 0
    """Kept pairs of the system in this store, those of earlier runs included."""
    n_hard: int = 0
    """Prompts whose answers nobody could tell apart."""
    n_variants: int = 0
    """Texts that were distilled for parameters with `mutate`."""
    n_proposed: int = 0
    """Candidates that were evaluated because a judge or a distilled text proposed them."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Why prompts, answers and judgements failed → how often."""
    restored: bool = False
    """Whether somebody learned to please the judge, and an earlier incumbent took its place again."""

    @property
    def n_kept(self) -> int:
        """Pairs kept in this run."""
        return sum(one.n_kept for one in self.rounds)

    @property
    def dropped(self) -> dict[str, int]:
        """Filter → pairs dropped in this run, those that dropped none left out."""
        found: dict[str, int] = {}
        for one in self.rounds:
            for name, n in one.dropped.items():
                found[name] = found.get(name, 0) + n
        return {name: n for name, n in found.items() if n}

    @property
    def sentence(self) -> str:
        """The one sentence: what the data changed."""
        if self.restored:
            return (
                "The judge's marks rose while grounded rewards fell: what it feeds is frozen, and the "
                "incumbent of the best round by rewards took its place again."
            )
        last = self.rounds[-1] if self.rounds else None
        if last is None or not self.n_kept:
            return "Preferences changed nothing: no pair was kept."
        heard = (
            f"the judge fills {100 * last.weight:.0f} % of the free places"
            if last.weight > 0
            else "the judge has no say in the draws"
        )
        return (
            f"Preferences changed which candidates were tried, never a reward: {heard}; "
            f"{self.n_proposed} candidates were evaluated at their proposal."
        )
