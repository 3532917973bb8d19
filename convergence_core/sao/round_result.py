"""Result of a round: pairs, the state after it, and a note on how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from convergence_core.judges.trust import Audit
from convergence_core.sao.executed_items import AuditItem
from convergence_core.sao.filters import Filter
from convergence_core.sao.history import RoundHistory
from convergence_core.sao.preferences import JudgedPair, Judgement
from convergence_core.sao.round_plan import RoundPlan
from convergence_core.sao.state import SaoState


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """Answers and judgements of a round."""

    prompts: tuple[str | None, ...]
    """One per persona; ``None`` if it failed."""
    pairs: tuple[JudgedPair, ...] = ()
    """All judged pairs, including those dropped afterwards."""
    n_pairs: int = 0
    """Number of complete pairs of answers, judged or not."""
    dropped: Mapping[Filter, int] = field(default_factory=dict)
    """Filter → pairs that it dropped."""
    agreement: float | None = None
    """Share of the latest pairs on which both orders agree; ``None`` without judgements."""
    abort_reason: str | None = None
    audits: tuple[tuple[AuditItem, Judgement], ...] = ()
    audit: Audit
    """Audit of the judge on these items."""
    variants: Mapping[str, str] = field(default_factory=dict)
    """Text parameter → its distilled variant."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Why prompts, answers and judgements failed → count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaoRound:
    """A finished round that is not yet committed."""

    plan: RoundPlan
    outcome: RoundOutcome
    history: RoundHistory
    """Prompts and judgements, including this round."""
    state: SaoState
    """State after the round."""
    n_variants: int
    """Number of prompts that joined the search space."""

    @property
    def note(self) -> str | None:
        """Why it was aborted or ended the rounds; ``None`` if it did neither."""
        return self.outcome.abort_reason or self.state.stop_reason


def conclude_round(plan: RoundPlan, outcome: RoundOutcome) -> SaoRound:
    """Return the result of a round.

    Args:
        plan: Plan of the round.
        outcome: Its answers and judgements.
    """
    after = plan.state.after([persona.index for persona in plan.personas], outcome.audit)
    variants = outcome.variants if after.is_believed else {}
    return SaoRound(
        plan=plan,
        outcome=outcome,
        history=plan.history.after(outcome.pairs, [item.item_id for item, _ in outcome.audits]),
        state=after.with_variants(variants),
        n_variants=len(variants),
    )
