"""From what a round asked to what it leaves: the state after it, and its rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convergence_core.coverage.alarms import bigrams_for
from convergence_core.coverage.configurations import configuration_coverage
from convergence_core.coverage.measures import measure
from convergence_core.records import canonical_json
from convergence_core.sampler import SearchState
from convergence_core.sao import learning
from convergence_core.sao.rounds import agreement
from convergence_core.sao.rows import audit_rows, preference_rows, round_row, text_rows
from convergence_core.sao.state import ABORTED, JudgedPair, SaoState
from convergence_core.space import Space
from convergence_core.store.protocols import Row
from convergence_core.trust.audit import Item, audit
from convergence_core.trust.exploitation import Standing
from tasks.preferences.planning import Data, Planned, grounded_means
from tasks.preferences.playing import Played, RoundPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A round that was played and is not committed yet."""

    generation: int
    pairs: tuple[JudgedPair, ...]
    prompts: tuple[str, ...]
    """Written on probation, which leaves no pair."""
    audited: tuple[str, ...]
    """Ids of the items that the judge was tried on."""
    state: SaoState
    tables: Mapping[str, list[Row]]


def concluded(
    run_id: str,
    generation: int,
    planned: Planned,
    played: Played,
    *,
    state: SaoState,
    earlier: Sequence[JudgedPair],
    probed: Sequence[str],
    search: SearchState,
    data: Data,
    space: Space,
    estimator: str | None,
) -> Round:
    """Return what a round leaves.

    Args:
        run_id: of the run.
        generation: before which it was played.
        planned: what it asked.
        played: what came of it.
        state: before it.
        earlier: pairs judged in earlier rounds.
        probed: prompts written on probation.
        search: the evidence so far.
        data: cases and personas.
        space: where candidates lie.
        estimator: how judgements were read.
    """
    plan = planned.plan
    pairs = [*earlier, *played.pairs]
    written = tuple(prompt for prompt in played.prompts if prompt is not None)
    on_probation = written if plan.is_probation else ()
    rng = np.random.default_rng([data.seed, plan.round_number, 2_718])
    found = audit(
        [
            Item(
                q=judgement.q,
                first_is_right=item.first_is_right,
                log_length_ratio=item.comparison.log_length_ratio,
            )
            for item, judgement in played.audits
        ],
        rng,
    )
    again = agreement(
        [before for before, _ in played.frozen_again], [now for _, now in played.frozen_again]
    )
    coverage = measure(
        [*texts_of(pairs), *probed, *on_probation],
        data.held_out_prompts,
        most_bigrams=bigrams_for(state.alarms.reference),
    )
    means = grounded_means(search)
    lessons = learning.RoundLessons(
        found=found,
        coverage=coverage,
        agreement_with_frozen=again,
        standing=standing_of(plan, played, means),
    )
    after = learning.after_round(state, lessons, [one.index for one in plan.personas])
    if not plan.is_probation:
        unasked = {n: p for n, p in planned.params_of.items() if n not in search.archive.members}
        after = learning.with_opinion(after, pairs, means, unasked)
    for name, text in played.variants.items():
        after = after.with_variant(name, text)
    alarm = after.alarms.why if after.alarms.is_stopped else None
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
        coverage=coverage,
        configurations=(
            configuration_coverage(space, (m.candidate.params for m in search.archive)),
            configuration_coverage(space, planned.params_of.values()),
        ),
        found=found,
        state=after,
        estimator=estimator,
        note=played.why_aborted or alarm or after.rounds.why_ended,
        n_variants=len(played.variants),
        agreement_with_frozen=again,
    )
    return Round(
        generation=generation,
        pairs=played.pairs,
        prompts=on_probation,
        audited=tuple(item.item_id for item, _ in played.audits),
        state=after,
        tables={
            "payloads": text_rows(run_id, played.pairs),
            "preferences": preference_rows(run_id, generation, played.pairs),
            "preference_rounds": [row],
            "preference_audits": audit_rows(run_id, generation, played.audits),
        },
    )


def texts_of(pairs: Sequence[JudgedPair]) -> list[str]:
    """Return prompts and answers in the order in which they were written."""
    return [
        text
        for pair in pairs
        for text in (
            pair.comparison.prompt,
            pair.comparison.first.text,
            pair.comparison.second.text,
        )
    ]


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
