"""Summary of a run's preferences for people."""

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
    is_enabled: bool = False
    """Whether trust suffices for the judge to be believed."""
    pooled_right: float | None = None
    """Items judged right over all audits, older ones lighter; ``None``: not told."""
    pooled_items: float | None = None
    """Of so many, as light."""
    lower_bound: float | None = None
    """Of the judge's accuracy, which trust rests on: its 10 % quantile."""
    n_missing: int = 0
    """Different grounded items that a verdict on the judge still needs."""
    drift: tuple[float, float] | None = None
    """Both sums of the alarm of drift, upwards and downwards."""
    is_drifting: bool = False
    """Whether one of them is above its limit."""
    slopes: tuple[float, float] | None = None
    """t of the slopes of the judge's and the grounded means; ``None``: fewer than five rounds."""
    is_frozen: bool = False
    """Whether somebody learned to please the judge, so that what it feeds is frozen."""
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

    @property
    def why_disbelieved(self) -> str | None:
        """Why the judge is not believed after it; ``None``: it is."""
        if self.is_frozen:
            return "somebody learned to please the judge, which silences it"
        if self.pooled_items is not None and self.pooled_items <= 0:
            return "the judge was tried on no grounded item, so nobody vouches for it"
        if self.n_missing:
            return f"there is no verdict on the judge: {missing(self.n_missing)}"
        if not self.is_enabled:
            return f"the judge is disabled, with a trust of {self.trust:.2f}"
        if self.is_drifting:
            return "the judge's marks drifted from rewards, which silences it"
        return None


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
    n_variants: int = 0
    """Texts that were distilled for parameters with `mutate`."""
    n_proposed: int = 0
    """Candidates that were evaluated since preferences proposed them."""
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
        """The one sentence: what the data did, and nothing that they did not."""
        if self.restored:
            return (
                "The judge's marks rose while grounded rewards fell: what it feeds is frozen, and in "
                "further rounds the incumbent of the best round by rewards answers again."
            )
        done = []
        if self.n_variants:
            done.append(
                f"{self.n_variants} {'text' if self.n_variants == 1 else 'texts'} distilled from kept "
                "pairs joined the search space"
            )
        if self.n_proposed:
            done.append(
                f"{self.n_proposed} {'candidate was' if self.n_proposed == 1 else 'candidates were'} "
                "evaluated at their proposal"
            )
        if done:
            return f"Preferences entered the search, and no reward: {'; '.join(done)}."
        if not self.n_kept:
            return "Preferences changed nothing: no pair was kept."
        why = self.rounds[-1].why_disbelieved or "no text was distilled from them"
        return (
            f"Preferences changed nothing that was tried: {why}. "
            f"{self.n_kept:,} kept {'pair is' if self.n_kept == 1 else 'pairs are'} in the store."
        )


def missing(n: int) -> str:
    """Return what a verdict on a judge still needs, in words."""
    # It brings NumPy, and reports of runs without preferences need not wait for that.
    from convergence_core.judges.trust.audit import LEAST_ITEMS  # noqa: PLC0415

    return (
        f"it takes {LEAST_ITEMS} different grounded items, {n} more than it was tried on "
        "(`society.sao.audit_items` of them in a round)"
    )
