"""Result of a run, from its store and its posterior."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from convergence_core.bandit.features import case_contexts, request_features
from convergence_core.bandit.report import Routing
from convergence_core.bandit.router import LEAST_UNITS, CaseTable, routing_of
from convergence_core.config import Configuration
from convergence_core.explanation.explain import explain
from convergence_core.prompts.state import text_id_of
from convergence_core.records import Params, Ranked, fields_of
from convergence_core.result import MetricInfo, ResultStatus, RoleCost, RunResult, Within
from convergence_core.search.goals import FittedGoals, Goals
from convergence_core.search.recommend import Recommendation
from convergence_core.search.sampler import SearchState
from convergence_core.search.samplers import ThompsonSampler, make_sampler
from convergence_core.search.source_report import SourceReport, source_reports
from convergence_core.space import Choice
from tasks.calls.model_calls import SAO, THOUGHT, WRITING
from tasks.inputs.loader import Loaded
from tasks.models.text_embedder import text_embedder
from tasks.report import phrases
from tasks.report.candidates import Final, View
from tasks.report.evidence import (
    Metrics,
    cells_by_candidate,
    costs_of,
    counts_of,
    curve_of,
    failures_of,
    metrics_of,
)
from tasks.report.front import pareto_front
from tasks.report.judge_section import judge_reports
from tasks.report.prompts_section import prompt_report
from tasks.report.rlp_section import thinking_report
from tasks.report.sao_section import preference_report
from tasks.run.adoption import champion_of_run
from tasks.run.run import Run
from tasks.store.clock import end_us
from tasks.store.journal.ledger import WHOLE_USD
from tasks.store.layout import label_of
from tasks.store.tables.lineage import ancestors
from tasks.store.tables.parquet_store import ParquetStore

MAX_LEADERBOARD = 500
"""Maximum rows in a result; the store holds all."""
_PURPOSES = {
    WRITING: "edits",
    THOUGHT: "thoughts",
    SAO: "preferences",
}
"""Purpose of a call → source of settings that it supports; other calls evaluate them."""
_CALLS = f"""
SELECT purpose, CAST(count(*) AS INTEGER) AS n, {WHOLE_USD} AS usd
FROM attempts WHERE run_id = $run AND state <> 'cached' GROUP BY purpose
"""  # noqa: S608 - constants


def collect_progress(run: Run) -> RunResult:
    """Return the result of an open run, as if it stopped now."""
    recommendation = run.study.recommend(run.state)
    return collect(
        run, recommendation, status="stopped", reason="the run continues", explains=False
    )


def collect(
    run: Run,
    recommendation: Recommendation | None,
    *,
    status: ResultStatus,
    reason: str,
    final: Final | None = None,
    explains: bool = True,
) -> RunResult:
    """Return the result of a run so far.

    Args:
        run: run with committed generations; its final re-estimation, if any, is published.
        recommendation: recommendation from its evidence; ``None`` if no candidate has answered.
        status: how the run ended.
        reason: why it ended, in words.
        final: re-estimation of winner and defaults; ``None`` if there was none.
        explains: whether to compute effects and explanation, which takes a fit of the surrogate
            and about a second.

    Raises:
        StoreDamagedError: a file of the run cannot be read.
    """
    loaded, space, search = run.loaded, run.loaded.space, run.state.search
    level = run.configuration.optimization.mab.confidence_level
    defaults = space.baseline()
    baseline_id = None if defaults is None else space.candidate_id(defaults)
    champion = champion_of_run(run)
    ranking = () if recommendation is None else recommendation.ranking
    top = ranking[:MAX_LEADERBOARD]
    shown = [ranked.candidate_id for ranked in top]
    metrics = _metrics(run, recommendation, shown, baseline_id)
    final = final or Final.of((), loaded.cases, level)
    names = space.names(_points(ranking, search, final))
    view = View(
        space=space,
        names=names,
        search=search,
        metrics=metrics,
        cells=cells_by_candidate(run.store, run.run_id),
        final=final,
        standing={ranked.candidate_id: ranked for ranked in ranking},
        level=level,
    )
    goals = Goals.of(run.configuration)
    fitted = None if goals is None else goals.fit(search.archive, space)
    result = _account(
        run,
        status=status,
        reason=reason,
        n_maybe_paid=len(run.resources.maybe_paid),
        n_candidates=len(search.archive),
        facts=_facts(run),
        baseline=view.report(baseline_id),
        champion=None if champion is None else view.report(champion.candidate_id),
        has_defaults=baseline_id is not None,
        front=pareto_front(fitted, search, names, level=level),
        leaderboard=tuple(view.row(rank, ranked) for rank, ranked in enumerate(top, 1)),
        named_values=space.named_values(
            search.archive.members[name].candidate.params for name in shown
        ),
    )
    result = _with_sections(result, run, view, baseline_id=baseline_id)
    if recommendation is None:
        return result
    result = _with_winner(result, view, recommendation, fitted, baseline_id)
    result = replace(result, prompts=prompt_report(run.store, result, _given_texts(loaded)))
    if not explains:
        return result
    return _with_reasons(result, run, recommendation, view, fitted)


def _metrics(
    run: Run, recommendation: Recommendation | None, shown: Sequence[str], baseline_id: str | None
) -> Metrics:
    """Return the metrics of the shown candidates, and of winner and defaults on shared cases."""
    defaults = () if baseline_id is None else (baseline_id,)
    winner = () if recommendation is None else (recommendation.candidate_id,)
    compared = [*dict.fromkeys([*shown, *defaults])]
    weights = run.past.case_weights
    return metrics_of(
        run.store, run.run_id, compared=compared, pair={*winner, *defaults}, case_weights=weights
    )


def _routing(run: Run, view: View) -> Routing:
    """Return the estimated gain of routing each search case to its own feasible candidate."""
    cases = run.loaded.search_cases
    rows = {case.case_id: i for i, case in enumerate(cases)}
    members = view.search.archive.members
    standing = view.standing.items()
    feasible = [name for name, ranked in standing if ranked.is_feasible and name in members]
    sums = np.zeros((2, len(cases), len(feasible)))
    for k, name in enumerate(feasible):
        for (case_id, _), reward in members[name].rewards.items():
            if case_id in rows:
                sums[:, rows[case_id], k] += reward, 1.0
    rewards = np.divide(sums[0], sums[1], out=np.full(sums[0].shape, np.nan), where=sums[1] > 0.0)
    embedder = text_embedder(is_served=False) if len(cases) >= LEAST_UNITS else None
    table = CaseTable(
        contexts=[request_features(c, None, embedder) for c in case_contexts(cases)],
        candidates=feasible,
        rewards=rewards,
        groups=[case.group for case in cases],
        weights=np.array([case.weight for case in cases]),
    )
    routing = routing_of(table, rng=np.random.default_rng(0), level=view.level)
    return replace(routing, texts="" if embedder is None else embedder.name)


def _points(ranking: Sequence[Ranked], search: SearchState, final: Final) -> dict[str, Params]:
    """Return the parameters of the candidates of search and final test, the best first."""
    members = search.archive.members
    return {
        **{
            ranked.candidate_id: members[ranked.candidate_id].candidate.params
            for ranked in ranking
        },
        **{name: member.candidate.params for name, member in members.items()},
        **{trial.candidate.candidate_id: trial.candidate.params for trial in final.trials},
    }


def _account(run: Run, **findings: Any) -> RunResult:
    """Return a run's settings, counts and costs beside its findings."""
    curve, costs = curve_of(run.store, run.run_id), costs_of(run.store, run.run_id)
    record, loaded, configuration = run.record, run.loaded, run.configuration
    totals = run.journal.totals(record.run_id)
    metrics = configuration.evaluation.metrics
    return RunResult(
        **fields_of(record, "run_id", "label", "seed", "started_us"),
        system=record.name,
        algorithm=configuration.optimization.algorithm,
        generations_run=len(curve),
        **counts_of(run.store, run.run_id),
        n_calls=totals.n_attempts,
        cost_usd=totals.cost_usd,
        costs=costs,
        never_called=_never_called(configuration, costs, len(curve) - 1),
        ended_us=end_us(record.started_us),
        n_search_cases=len(loaded.search_cases),
        n_holdout_cases=len(loaded.holdout_cases),
        metrics=tuple(
            MetricInfo(name=name, direction=metrics[name].direction, weight=metrics[name].weight)
            for name in sorted(metrics, key=lambda name: (-metrics[name].weight, name))
        ),
        winner=None,
        curve=curve,
        failures=failures_of(run.store, run.run_id),
        **findings,
    )


def _never_called(
    configuration: Configuration, costs: Sequence[RoleCost], n_before: int
) -> tuple[str, ...]:
    """Return the configured purposes without a call, in words."""
    society, prompts = configuration.society, configuration.prompts
    has_llm = configuration.llm is not None
    wanted = {
        "judge": ("judges", bool(configuration.evaluation.judges)),
        "thought": ("thoughts", has_llm and society.thinks and n_before > 0),
        "writing": (
            "prompt writing",
            configuration.writes_prompts and prompts.writer == "llm" and n_before > 0,
        ),
        "sao": ("preferences", has_llm and society.prefers and n_before >= society.sao.every),
    }
    called = {cost.purpose for cost in costs}
    return tuple(
        name for key, (name, is_wanted) in wanted.items() if is_wanted and key not in called
    )


def _facts(run: Run) -> dict[str, str]:
    """Return the facts that the numbers depend on."""
    record, past = run.record, run.past
    lines = (past.describe(), past.describe_agreement(run.state.search))
    text = "; ".join(line for line in lines if line is not None)
    facts = {**record.tags, **({"earlier runs": text} if text else {})}
    for newest in ancestors(record)[:1]:
        facts["continues"] = label_of(record.name, newest)
    return facts | {
        "code": record.code_version,
        "sha256 of the configuration": record.config_sha256,
        "sha256 of the test cases": record.cases_sha256,
    }


def _with_sections(
    result: RunResult, run: Run, view: View, *, baseline_id: str | None
) -> RunResult:
    """Return the result with its sources, judges, thoughts and preferences."""
    store, loaded = run.store, run.loaded
    return replace(
        result,
        judges=judge_reports(
            store,
            result.run_id,
            configuration=loaded.configuration,
            cases=loaded.cases,
            baseline_id=baseline_id,
        ),
        thinking=thinking_report(
            store,
            result.run_id,
            space=loaded.space,
            params_of={m.candidate.candidate_id: m.candidate.params for m in view.search.archive},
        ),
        preferences=preference_report(store, result.run_id, result.system),
        sources=_sources(store, result.run_id, view),
    )


def _sources(store: ParquetStore, run_id: str, view: View) -> tuple[SourceReport, ...]:
    """Return the share and gain of each source of settings; empty if there is only one."""
    means = {name: ranked.mean for name, ranked in view.standing.items()}
    reports = {r.source: r for r in source_reports(view.search.archive, means)}
    if len(reports) < 2:
        return ()
    for row in store.rows(_CALLS, {"run": run_id}):
        source = _PURPOSES.get(row["purpose"], "")
        if (report := reports.get(source)) is not None:
            reports[source] = replace(report, n_calls=row["n"], cost_usd=row["usd"])
    return tuple(reports.values())


def _given_texts(loaded: Loaded) -> dict[str, str]:
    """Return text id → prompt of all text parameters."""
    return {
        text_id_of(str(text)): str(text)
        for parameter in loaded.space.parameters.values()
        if isinstance(parameter, Choice) and parameter.kind == "text"
        for text in parameter.choices
    }


def _with_winner(
    result: RunResult,
    view: View,
    recommendation: Recommendation,
    goals: FittedGoals | None,
    baseline_id: str | None,
) -> RunResult:
    """Return the result with the winner and its lead over the defaults."""
    winner_id = recommendation.candidate_id
    reason = ""
    if goals is not None:
        tolerance = goals.goals.tolerance
        reason = phrases.constraint_reason(recommendation, view.names, tolerance)
    return replace(
        result,
        winner=view.report(winner_id),
        winner_reason=reason,
        difference=view.final.difference(winner_id, baseline_id, "holdout"),
        difference_fresh=view.final.difference(winner_id, baseline_id, "fresh"),
        within=Within(delta=recommendation.delta, probability=recommendation.probability_within),
    )


def _with_reasons(
    result: RunResult,
    run: Run,
    recommendation: Recommendation,
    view: View,
    goals: FittedGoals | None,
) -> RunResult:
    """Return the result with the reasons of the recommendation and the gain of routing."""
    sampler = make_sampler(run.configuration, view.space)
    effects, explanation = explain(
        run.past.surrogate,
        view.search.archive,
        recommendation,
        rng=np.random.default_rng(0),
        names=view.names,
        case_weights=run.past.case_weights,
        rules=sampler.rules if isinstance(sampler, ThompsonSampler) else None,
        goals=goals,
    )
    return replace(result, effects=effects, explanation=explanation, routing=_routing(run, view))
