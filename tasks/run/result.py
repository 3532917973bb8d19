"""From the store and the posterior to a ``RunResult``."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from convergence_core.config import Configuration
from convergence_core.explanation.explain import Explained, explain
from convergence_core.objective.goals import FittedGoals, Goals
from convergence_core.ports import CallTotals, RunRecord, Store
from convergence_core.posterior import SpaceModel
from convergence_core.records import Case, Trial
from convergence_core.result import MetricInfo, ResultStatus, RunResult, Within
from convergence_core.search.recommend import Recommendation
from convergence_core.search.sampler import SearchState
from convergence_core.search.samplers import ThompsonSampler, make_sampler, make_surrogate
from convergence_core.space import Space
from tasks.inputs.cases import split_holdout
from tasks.report import phrases
from tasks.report.candidates import Final, View
from tasks.report.evidence import RunEvidence, read_evidence
from tasks.report.front import pareto_front
from tasks.report.judge_section import judge_reports
from tasks.report.rlp_section import thinking_report
from tasks.report.sao_section import preference_report
from tasks.run.prior_runs import PriorRuns
from tasks.run.run import Run
from tasks.store.clock import wall_clock_us
from tasks.store.tables.ids import label_of
from tasks.store.tables.lineage import ancestors

MAX_LEADERBOARD = 500
"""Rows kept in a result; the store and ``experiments.csv`` hold all."""


def collect(
    store: Store,
    record: RunRecord,
    *,
    configuration: Configuration,
    space: Space,
    search: SearchState,
    recommendation: Recommendation | None,
    final_trials: Sequence[Trial] = (),
    totals: CallTotals,
    n_maybe_paid: int = 0,
    cases: Iterable[Case] = (),
    n_search_cases: int,
    n_holdout_cases: int,
    status: ResultStatus,
    reason: str,
    baseline_id: str | None,
    explains: bool = True,
    past: PriorRuns | None = None,
) -> RunResult:
    """Return everything that a run has found so far.

    Args:
        store: holds the run's committed generations, and its final re-estimation if it had one.
        record: the run's row; ``ended_us`` is when the result was made.
        configuration: of the run.
        space: of the run.
        search: what was learned by the last committed generation.
        recommendation: whom that evidence hands over; ``None``: no candidate has a reward.
        final_trials: the re-estimation of the winner and the default.
        totals: the journal's account of the run.
        n_maybe_paid: calls in flight when an earlier process died.
        cases: test cases, for their weights.
        n_search_cases: cases that the search may ask.
        n_holdout_cases: cases that it may not.
        status: how the run ended.
        reason: why, in words.
        baseline_id: the default configuration; ``None``: the configuration gives none.
        explains: whether effects and explanation are found too, which takes a fit of the surrogate
            and about a second.
        past: what the run knows of earlier ones; ``None``: nothing.

    Raises:
        StoreDamagedError: a file of the run cannot be read.
    """
    goals = Goals.of(configuration)
    told_goals = None if goals is None else goals.fit(search.archive, space)
    deterministic = configuration.evaluation.deterministic
    surrogate = (
        make_surrogate(space, deterministic=deterministic) if past is None else past.surrogate
    )
    level = configuration.optimization.mab.confidence_level
    cases = tuple(cases)
    final = Final.of(final_trials, cases, level)
    ranking = () if recommendation is None else recommendation.ranking
    shown = [ranked.candidate_id for ranked in ranking[:MAX_LEADERBOARD]]
    holdout_share = configuration.evaluation.test_cases.holdout
    evidence = read_evidence(
        store,
        record.run_id,
        compared=[*dict.fromkeys([*shown, *([] if baseline_id is None else [baseline_id])])],
        case_weights=_search_weights(cases, holdout_share),
    )
    standing = {ranked.candidate_id: ranked for ranked in ranking}
    view = View(
        space=space,
        search=search,
        evidence=evidence,
        final=final,
        standing=standing,
        level=level,
    )
    winner_id = None if recommendation is None else recommendation.candidate_id
    explained = None
    if explains and recommendation is not None:
        explained = _explained(
            recommendation,
            search,
            evidence,
            configuration=configuration,
            space=space,
            cases=cases,
            baseline_id=baseline_id,
            surrogate=surrogate,
            goals=told_goals,
        )
    gaps = {role: final.difference(winner_id, baseline_id, role) for role in ("holdout", "fresh")}
    return RunResult(
        run_id=record.run_id,
        label=record.label,
        system=record.name,
        status=status,
        reason=reason,
        algorithm=configuration.optimization.algorithm,
        seed=record.seed,
        generations_run=len(evidence.curve),
        n_candidates=len(search.archive),
        n_evaluations=evidence.counts.n_evaluations,
        n_calls=totals.n_attempts,
        n_cached=evidence.counts.n_cached,
        n_failed=evidence.counts.n_failed,
        n_missing=evidence.counts.n_missing,
        n_skipped=evidence.counts.n_skipped,
        n_maybe_paid=n_maybe_paid,
        cost_usd=totals.cost_usd,
        costs=evidence.costs,
        judges=judge_reports(
            store,
            record.run_id,
            configuration=configuration,
            cases=cases,
            baseline_id=baseline_id,
        ),
        started_us=record.started_us,
        ended_us=record.ended_us or record.started_us,
        n_search_cases=n_search_cases,
        n_holdout_cases=n_holdout_cases,
        facts={
            **record.tags,
            **_told(past, search),
            **_lineage(record),
            "code": record.code_version,
            "sha256 of the configuration": record.config_sha256,
            "sha256 of the test cases": record.cases_sha256,
        },
        metrics=_metrics(configuration),
        winner=view.report(winner_id),
        baseline=view.report(baseline_id),
        winner_reason=""
        if goals is None or recommendation is None
        else phrases.constraint_reason(recommendation, space, search, goals.tolerance),
        front=pareto_front(told_goals, search, space, level=level),
        has_defaults=baseline_id is not None,
        difference=gaps["holdout"],
        difference_fresh=gaps["fresh"],
        within=None
        if recommendation is None
        else Within(delta=recommendation.delta, probability=recommendation.probability_within),
        leaderboard=tuple(
            view.row(rank, ranked) for rank, ranked in enumerate(ranking[:MAX_LEADERBOARD], 1)
        ),
        curve=evidence.curve,
        effects=() if explained is None else explained.effects,
        explanation=None if explained is None else explained.explanation,
        thinking=thinking_report(
            store,
            record.run_id,
            space=space,
            params_of={m.candidate.candidate_id: m.candidate.params for m in search.archive},
        ),
        preferences=preference_report(store, record.run_id, record.name),
        named_values=space.named_values(
            search.archive.members[name].candidate.params for name in shown
        ),
        failures=evidence.failures,
    )


def _lineage(record: RunRecord) -> dict[str, str]:
    """Return the finished run that a run goes on from, by its short name."""
    names = ancestors(record)
    return {"goes on from": label_of(record.name, names[0])} if names else {}


def _told(past: PriorRuns | None, search: SearchState) -> dict[str, str]:
    """Return what the run took over from earlier ones, in words."""
    if past is None:
        return {}
    lines = [
        line for line in (past.describe(), past.describe_agreement(search)) if line is not None
    ]
    return {"earlier runs": "; ".join(lines)} if lines else {}


def _metrics(configuration: Configuration) -> tuple[MetricInfo, ...]:
    """Return the metrics, those of most weight first."""
    metrics = sorted(
        configuration.evaluation.metrics.items(), key=lambda item: (-item[1].weight, item[0])
    )
    return tuple(
        MetricInfo(name=name, direction=metric.direction, weight=metric.weight)
        for name, metric in metrics
    )


def collect_progress(run: Run) -> RunResult:
    """Return what a living run has found so far, as if it were stopped now."""
    loaded = run.loaded
    baseline = loaded.space.baseline()
    ended_us = wall_clock_us()
    return collect(
        run.store,
        replace(run.record, ended_us=ended_us),
        configuration=run.configuration,
        space=loaded.space,
        search=run.state.search,
        recommendation=run.study.recommend(run.state),
        totals=run.journal.totals(run.run_id),
        n_maybe_paid=len(run.maybe_paid),
        cases=loaded.cases,
        n_search_cases=len(loaded.search_cases),
        n_holdout_cases=len(loaded.holdout_cases),
        status="stopped",
        reason="the run goes on",
        past=run.past,
        baseline_id=None if baseline is None else loaded.space.candidate_id(baseline),
        explains=False,
    )


def _explained(
    recommendation: Recommendation,
    search: SearchState,
    evidence: RunEvidence,
    *,
    configuration: Configuration,
    space: Space,
    cases: Sequence[Case],
    baseline_id: str | None,
    surrogate: SpaceModel,
    goals: FittedGoals | None,
) -> Explained:
    """Return why the recommendation is what it is; the same for the same evidence."""
    sampler = make_sampler(configuration, space)
    return explain(
        surrogate,
        search.archive,
        recommendation,
        rng=np.random.default_rng(0),
        baseline_id=baseline_id,
        case_weights=_search_weights(cases, configuration.evaluation.test_cases.holdout),
        cell_to_generation=evidence.cell_to_generation,
        rules=sampler.rules if isinstance(sampler, ThompsonSampler) else None,
        goals=goals,
    )


def _search_weights(cases: Sequence[Case], holdout: float) -> dict[str, float]:
    search_cases, _ = split_holdout(cases, holdout)
    return {case.case_id: case.weight for case in search_cases}
