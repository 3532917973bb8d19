"""Result of a round: pairs, the state after it, and what is said of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from convergence_core.judges.coverage.measures import Coverage
from convergence_core.judges.trust.audit import Audit
from convergence_core.judges.trust.exploitation import IncumbentMeans
from convergence_core.records import canonical_json
from convergence_core.sao.executed_items import AuditItem
from convergence_core.sao.filters import Filter
from convergence_core.sao.history import RoundHistory
from convergence_core.sao.judge_bias import JudgeBias
from convergence_core.sao.preferences import ABORTED, JudgedPair, Judgement
from convergence_core.sao.round_plan import RoundPlan
from convergence_core.sao.rounds import agreement
from convergence_core.sao.state import SaoState


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """What models answered in a round, and what they were judged to be."""

    prompts: tuple[str | None, ...]
    """One per persona; ``None``: it failed."""
    pairs: tuple[JudgedPair, ...] = ()
    """All judged pairs, those dropped after it included."""
    n_pairs: int = 0
    """Pairs of answers that came to be, judged or not."""
    dropped: Mapping[Filter, int] = field(default_factory=dict)
    """Filter → pairs that it dropped."""
    bias: JudgeBias
    abort_reason: str | None = None
    audits: tuple[tuple[AuditItem, Judgement], ...] = ()
    audit: Audit
    """What these say of the judge."""
    frozen_again: tuple[tuple[Judgement, Judgement], ...] = ()
    """Frozen verdicts, and what is said now."""
    variants: Mapping[str, str] = field(default_factory=dict)
    """Text parameter → the variant that was distilled."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Why prompts, answers and judgements failed → how often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaoRound:
    """A round that was run and is not committed yet."""

    plan: RoundPlan
    outcome: RoundOutcome
    pairs: tuple[JudgedPair, ...]
    """As they are stored: those of a round that raised an alarm of coverage are marked."""
    history: RoundHistory
    """What was written and judged, this round included."""
    state: SaoState
    """After it."""
    coverage: Coverage
    """Of what was written last: of prompts alone in a round of these."""
    agreement_with_frozen: float | None
    n_variants: int
    """Texts that joined the search space."""

    @property
    def probes(self) -> list[tuple[int, str]]:
        """Persona and prompt of what was written on probation."""
        return _probes(self.plan, self.outcome)

    @property
    def note(self) -> str | None:
        """What is said of it; ``None``: it went as it should."""
        found = [self.outcome.abort_reason]
        if self.state.alarms.is_stopped:
            effect = "; its pairs teach nothing" if self.pairs else ""
            found.append(f"{self.state.alarms.why}{effect}")
        return "; ".join(why for why in found if why) or self.state.rounds.stop_reason


def conclude_round(plan: RoundPlan, outcome: RoundOutcome, means: Mapping[str, float]) -> SaoRound:
    """Return what a round leaves.

    Pairs of a round whose texts raise an alarm of coverage are written down, and teach nothing: a text that
    was distilled from them is not taken.

    Args:
        plan: what it asked.
        outcome: what came of it.
        means: candidate → mean of its rewards.
    """
    state, history = plan.state, plan.history
    probes = [prompt for _, prompt in _probes(plan, outcome)]
    items = [item.item_id for item, _ in outcome.audits]
    after_it = history.after(outcome.pairs, probes, items)
    windows = state.alarms.windows(after_it.texts, after_it.written, plan.source.held_out_prompts)
    again = agreement(outcome.frozen_again)
    after = state.after(
        [persona.index for persona in plan.personas],
        audit=outcome.audit,
        windows=windows,
        agreement_with_frozen=again,
        incumbent=incumbent_means(plan, outcome, means),
    )
    pairs = outcome.pairs
    if after.alarms.is_stopped:
        pairs = tuple(replace(pair, is_collapsed=True) for pair in pairs)
        after_it = history.after(pairs, probes, items)
    variants = outcome.variants if after.is_believed and after.alarms.gives_rows else {}
    return SaoRound(
        plan=plan,
        outcome=outcome,
        pairs=pairs,
        history=after_it,
        state=after.with_variants(variants),
        coverage=windows.prompts if plan.is_probation else windows.texts,
        agreement_with_frozen=again,
        n_variants=len(variants),
    )


def _probes(plan: RoundPlan, outcome: RoundOutcome) -> list[tuple[int, str]]:
    written = zip(plan.personas, outcome.prompts, strict=True)
    return [
        (persona.index, prompt)
        for persona, prompt in written
        if prompt is not None and plan.is_probation
    ]


def incumbent_means(
    plan: RoundPlan, outcome: RoundOutcome, means: Mapping[str, float]
) -> IncumbentMeans | None:
    """Return the incumbent as judge and rewards see it; ``None``: they do not."""
    name = plan.incumbent.candidate_id
    said = [
        pair.judgement.q if pair.comparison.first.author == name else 1.0 - pair.judgement.q
        for pair in outcome.pairs
        if pair.comparison.kind == "candidates"
        and pair.dropped_by != ABORTED
        and name in (pair.comparison.first.author, pair.comparison.second.author)
    ]
    if not said or name not in means:
        return None
    return IncumbentMeans(
        round_number=plan.round_number,
        incumbent=canonical_json(dict(plan.incumbent.params)),
        judge_mean=sum(said) / len(said),
        grounded_mean=means[name],
    )
