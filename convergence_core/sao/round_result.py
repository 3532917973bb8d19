"""Result of a round: pairs, the state after it, and what is said of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from convergence_core.judges.coverage import Coverage
from convergence_core.judges.trust import Audit
from convergence_core.sao.executed_items import AuditItem
from convergence_core.sao.filters import Filter
from convergence_core.sao.history import RoundHistory
from convergence_core.sao.judge_bias import JudgeBias
from convergence_core.sao.preferences import JudgedPair, Judgement
from convergence_core.sao.round_plan import RoundPlan
from convergence_core.sao.rounds import agreement
from convergence_core.sao.state import SaoState


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """What models answered in a round, and what they were judged to be."""

    prompts: tuple[str | None, ...]
    """One per persona; ``None`` if it failed."""
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
    """Measures of the texts that were written last."""
    agreement_with_frozen: float | None
    n_variants: int
    """Texts that joined the search space."""

    @property
    def note(self) -> str | None:
        """Why it was aborted, raised an alarm or ended the rounds; ``None`` if it did none of these."""
        alarms = self.state.alarms
        reasons = [
            self.outcome.abort_reason,
            f"{alarms.why}; its pairs teach nothing" if alarms.is_stopped else None,
        ]
        return "; ".join(filter(None, reasons)) or self.state.rounds.stop_reason


def conclude_round(plan: RoundPlan, outcome: RoundOutcome) -> SaoRound:
    """Return the result of a round.

    Pairs of a round whose texts raise an alarm of coverage are stored and teach nothing: no text that was
    distilled from them joins the search space.

    Args:
        plan: of the round.
        outcome: its answers and judgements.
    """
    state, history = plan.state, plan.history
    items = [item.item_id for item, _ in outcome.audits]
    later = history.after(outcome.pairs, items)
    coverage = state.alarms.window(later.texts, plan.source.held_out_prompts)
    again = agreement(outcome.frozen_again)
    after = state.after(
        [persona.index for persona in plan.personas],
        audit=outcome.audit,
        coverage=coverage,
        agreement_with_frozen=again,
    )
    pairs = outcome.pairs
    if after.alarms.is_stopped:
        pairs = tuple(replace(pair, is_collapsed=True) for pair in pairs)
        later = history.after(pairs, items)
    variants = outcome.variants if after.is_believed and not after.alarms.is_stopped else {}
    return SaoRound(
        plan=plan,
        outcome=outcome,
        pairs=pairs,
        history=later,
        state=after.with_variants(variants),
        coverage=coverage,
        agreement_with_frozen=again,
        n_variants=len(variants),
    )
