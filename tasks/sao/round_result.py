"""From what a round asked to what it leaves: the state after it, and its rows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from convergence_core.judges.coverage.configurations import configuration_coverage
from convergence_core.judges.trust.exploitation import Standing
from convergence_core.ports import Row
from convergence_core.records import canonical_json
from convergence_core.sao.rounds import agreement
from convergence_core.sao.rows import audit_rows, preference_rows, probe_rows, round_row, text_rows
from convergence_core.sao.state import ABORTED, JudgedPair, RoundLessons, SaoState
from convergence_core.search.sampler import SearchState
from convergence_core.space import Space
from tasks.sao.history import RoundHistory
from tasks.sao.round import Played, RoundPlan
from tasks.sao.round_plan import Data, grounded_means


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A round that was played and is not committed yet."""

    generation: int
    pairs: tuple[JudgedPair, ...]
    history: RoundHistory
    """What was written and judged, this round included."""
    state: SaoState
    tables: Mapping[str, list[Row]]


def concluded(
    run_id: str,
    generation: int,
    plan: RoundPlan,
    played: Played,
    *,
    state: SaoState,
    history: RoundHistory,
    search: SearchState,
    data: Data,
    space: Space,
    estimator: str | None,
) -> Round:
    """Return what a round leaves.

    Pairs of a round whose texts raise an alarm of coverage are written down, and teach nothing: a text that
    was distilled from them is not taken.

    Args:
        run_id: of the run.
        generation: before which it was played.
        plan: what it asked.
        played: what came of it.
        state: before it.
        history: what was written and judged before it.
        search: the evidence so far.
        data: cases and personas.
        space: where candidates lie.
        estimator: how judgements were read.
    """
    probes = [
        (persona.index, prompt)
        for persona, prompt in zip(plan.personas, played.prompts, strict=True)
        if prompt is not None and plan.is_probation
    ]
    prompts = [prompt for _, prompt in probes]
    items = [item.item_id for item, _ in played.audits]
    now = history.after(played.pairs, prompts, items)
    again = agreement(
        [before for before, _ in played.frozen_again], [now for _, now in played.frozen_again]
    )
    seen = state.alarms.windows(now.texts, now.written, data.held_out_prompts)
    lessons = RoundLessons(
        found=played.found,
        coverage=seen,
        agreement_with_frozen=again,
        standing=standing_of(plan, played, grounded_means(search)),
    )
    after = state.after(lessons, [one.index for one in plan.personas])
    pairs = played.pairs
    if after.alarms.is_stopped:
        pairs = tuple(replace(pair, is_collapsed=True) for pair in pairs)
        now = history.after(pairs, prompts, items)
    variants = played.variants if after.is_believed and after.alarms.gives_rows else {}
    for name, text in variants.items():
        after = after.with_variant(name, text)
    row = round_row(
        run_id,
        generation,
        round_number=plan.round_number,
        n_prompts=len(plan.personas),
        n_pairs=played.n_pairs,
        n_judged=len(played.pairs),
        n_kept=sum(pair.dropped_by is None for pair in played.pairs),
        counters=played.counters,
        errors=played.errors,
        pooled=played.pooled,
        coverage=seen.prompts if plan.is_probation else seen.texts,
        configurations=(
            configuration_coverage(space, (m.candidate.params for m in search.archive)),
            configuration_coverage(space, (one.params for one in plan.rivals)),
        ),
        found=played.found,
        state=after,
        estimator=estimator,
        note=_note(played, after),
        n_variants=len(variants),
        agreement_with_frozen=again,
    )
    written = probe_rows(run_id, generation, plan.round_number, probes)
    return Round(
        generation=generation,
        pairs=pairs,
        history=now,
        state=after,
        tables={
            "payloads": [*text_rows(run_id, pairs), *written["payloads"]],
            "preferences": preference_rows(run_id, generation, pairs),
            "preference_probes": written["preference_probes"],
            "preference_rounds": [row],
            "preference_audits": audit_rows(run_id, generation, played.audits),
        },
    )


def _note(played: Played, after: SaoState) -> str | None:
    """Return what is said of a round; ``None``: it went as it should."""
    found = [played.why_aborted]
    if after.alarms.is_stopped:
        found.append(f"{after.alarms.why}{'; its pairs teach nothing' if played.pairs else ''}")
    return "; ".join(why for why in found if why) or after.rounds.stop_reason


def standing_of(plan: RoundPlan, played: Played, means: Mapping[str, float]) -> Standing | None:
    """Return the incumbent as judge and rewards see it; ``None``: they do not."""
    name = plan.incumbent.candidate_id
    said = [
        pair.judgement.q if pair.comparison.first.author == name else 1.0 - pair.judgement.q
        for pair in played.pairs
        if pair.comparison.kind == "candidates"
        and pair.dropped_by != ABORTED
        and name in (pair.comparison.first.author, pair.comparison.second.author)
    ]
    if not said or name not in means:
        return None
    return Standing(
        round_number=plan.round_number,
        incumbent=canonical_json(dict(plan.incumbent.params)),
        judge_mean=sum(said) / len(said),
        grounded_mean=means[name],
    )
