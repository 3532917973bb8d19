"""End of a run: final test, result, result files, promotion gate."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from convergence_core.config.models import PromotionConfig
from convergence_core.events import FinalStarted, RunFinished
from convergence_core.gate.intervals import grouped
from convergence_core.gate.paired import PairedGate, level_of_look, share_left
from convergence_core.ports import Row
from convergence_core.records import (
    Assignment,
    Candidate,
    Role,
    Trial,
    canonical_json,
    fields_of,
    sha256_hex,
)
from convergence_core.result import Estimate, GateReport, RunResult
from convergence_core.result.run_result import LACK_TAG
from convergence_core.result.verdict import is_recommended, kind_of, outcome_of
from convergence_core.search.final_look import describe_shortage, final_status, finalists
from convergence_core.search.recommend import Recommendation
from tasks.report.candidates import Final
from tasks.report.files import write_results
from tasks.run.adoption import ID_TAG, adopt, champion_of_run, obstacle
from tasks.run.publication import publish_final
from tasks.run.result import collect
from tasks.run.run import Run
from tasks.store.clock import wall_clock_us
from tasks.store.runtime.promotions import champion_runs, looks_before, save_look
from tasks.store.runtime.rows import GateLook
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.rows import measured_row, posterior_rows

_DETAILS = ("opponent", "mean", "low", "high", "alpha", "level", "left", "min_effect")
"""Fields of a verdict without their own columns."""


def judge(
    promotion: PromotionConfig,
    final: Final,
    candidate: Candidate,
    opponent: Candidate | None,
    *,
    is_champion: bool,
    n_looks: Mapping[str, int] = MappingProxyType({}),
    forecasts: bool = True,
) -> GateReport | None:
    """Judge on held-out cases whether the candidate may replace the opponent.

    The mean difference of each group of similar cases is one bet.

    Args:
        promotion: settings of the gate.
        final: the final test.
        candidate: the winner.
        opponent: the champion, or the defaults; ``None`` if neither exists.
        is_champion: whether the opponent is the champion.
        n_looks: earlier looks at each case, by its ``case_mark``.
        forecasts: whether to estimate how many more cases a verdict needs, which takes up to half
            a second.

    Returns:
        The verdict; ``None`` if there is nothing to compare.
    """
    if opponent is None or opponent.candidate_id == candidate.candidate_id:
        return None
    rewards = final.rewards(candidate.candidate_id, "holdout")
    other = final.rewards(opponent.candidate_id, "holdout")
    cases = sorted(rewards.keys() & other.keys())
    if not cases:
        return None
    values, shares = grouped(
        [rewards[case] - other[case] for case in cases],
        [final.weights.get(case, 1.0) for case in cases],
        [final.groups.get(case) for case in cases],
    )
    n_of_unit: dict[str, int] = {}
    for case in cases:
        unit, n = final.groups.get(case, f"case:{case}"), n_looks.get(case_mark(case), 0)
        n_of_unit[unit] = max(n, n_of_unit.get(unit, 0))
    n_earlier = np.array(list(n_of_unit.values()))
    gate = PairedGate(alpha=promotion.alpha, min_effect=promotion.min_effect)
    level, left = level_of_look(promotion.alpha, n_earlier), share_left(n_earlier + 1)
    verdict = gate.judge(values, weights=shares, level=level)
    low = high = None
    n_to_verdict = 0 if verdict.decision != "undecided" else None
    if forecasts and verdict.decision == "undecided":
        forecast = gate.forecast(values, weights=shares, left=left)
        low, n_to_verdict, high = forecast or (None, None, None)
    return GateReport(
        decision=verdict.decision,
        opponent="champion" if is_champion else "default",
        opponent_id=opponent.candidate_id,
        n_cases=len(cases),
        n_groups=verdict.n if verdict.n < len(cases) else None,
        **fields_of(
            verdict, "mean", "low", "high", "log_threshold", "p_value", "probability_better"
        ),
        **fields_of(promotion, "alpha", "min_effect"),
        log_e=verdict.log_e_better,
        n_to_verdict=n_to_verdict,
        n_to_verdict_low=low,
        n_to_verdict_high=high,
        level=level,
        left=promotion.alpha * left,
    )


def case_mark(case_id: str) -> str:
    """Return a case's short hash in the ledger of looks."""
    return sha256_hex(case_id)[:8]


def mark_of_bets(
    final: Final, cases: Sequence[str], rewards: Mapping[str, float], other: Mapping[str, float]
) -> str:
    """Return a short hash of all that a verdict reads from the final test."""
    weights, groups = final.weights, final.groups
    bets = [(rewards[c], other[c], weights.get(c, 1.0), groups.get(c)) for c in cases]
    return sha256_hex(canonical_json(bets))[:16]


def _look(run: Run, final: Final, candidate: Candidate, opponent: Candidate) -> GateLook:
    """Return the look at held-out cases with a reward for both, before its verdict."""
    rewards, other = (final.rewards(c.candidate_id, "holdout") for c in (candidate, opponent))
    cases = sorted(rewards.keys() & other.keys())
    return GateLook(
        system=run.record.name,
        kind="holdout",
        candidate_id=candidate.candidate_id,
        champion_id=opponent.candidate_id,
        run_id=run.run_id,
        decision="undecided",
        n=len(cases),
        log_e=0.0,
        log_threshold=0.0,
        details={
            "cases": " ".join(case_mark(case) for case in cases),
            "rewards": mark_of_bets(final, cases, rewards, other),
        },
        created_us=wall_clock_us(),
    )


def record_verdict(run: Run, result: RunResult, gate: GateReport, look: GateLook) -> bool:
    """Store a verdict; without required approval, make the candidate champion and serve it.

    Args:
        run: the ending run.
        result: its result.
        gate: the verdict.
        look: the look behind the verdict.

    Returns:
        Whether the candidate is now the champion.
    """
    look = replace(
        look,
        **fields_of(gate, "decision", "log_e", "log_threshold"),
        details={
            **fields_of(gate, *_DETAILS),
            "label": run.label,
            **look.details,
        },
    )
    with RuntimeStore(run.store.path) as store:
        save_look(store, look)
        if gate.decision != "promote" or run.configuration.promotion.require_adoption:
            return False
        # A resumed run does not undo a rollback; another run at the same rewards may adopt.
        if obstacle(store, result) is None and run.run_id not in champion_runs(store):
            adopt(store, result, reason=f"promoted by run {run.label} automatically")
        return obstacle(store, result) == "is_champion"


def choose_finalists(run: Run) -> list[Assignment]:
    """Return the assignments of the final test: winner, defaults and champion.

    Raises:
        RunInterruptedError: the run received a stop request.
    """
    run.check_stop()
    run.begin_final()
    held_out = [case.case_id for case in run.loaded.holdout_cases]
    assignments = finalists(run.study, run.state, held_out, champion_of_run(run))
    if assignments:
        run.emit(FinalStarted(n_cells=sum(len(assignment.cells) for assignment in assignments)))
    return assignments


def conclude(run: Run, trials: Sequence[Trial]) -> RunResult:
    """Publish the final evaluations, write the result files and mark the run as done.

    Raises:
        RunInterruptedError: the run received a stop request; resuming it repeats the final test.
    """
    run.check_stop()
    loaded, study = run.loaded, run.study
    recommendation = study.recommend(run.state)
    shortage = "" if recommendation is None else describe_shortage(study.schedule, trials)
    status, reason = final_status(
        study, run.state, trials, shortage=shortage, n_calls=run.spent.calls
    )
    final = Final.of(trials, loaded.cases, study.confidence_level)
    candidate, gate, kept, look = _judged(run, recommendation, final)
    met_champion = LACK_TAG not in run.record.tags
    _publish(run, recommendation, final, recommended=(kept or candidate) if met_champion else None)
    result = collect(run, recommendation, status=status, reason=reason, final=final)
    stays = result.champion if champion_of_run(run) else result.baseline
    if kept is not None and stays is not None:
        result = replace(result, winner=stays, challenger=result.winner)
    elif kept is not None:
        lack = {LACK_TAG: "no case has a reward for both"}
        result = replace(result, facts={**result.facts, **lack})
    if look is not None and gate is not None:
        result = replace(result, gate=gate, difference=_one_difference(result.difference, gate))
        is_adopted = record_verdict(run, result, gate, look)
        result = replace(result, gate=replace(gate, is_adopted=is_adopted))
    result = write_results(
        replace(result, final_look=shortage),
        run.store,
        run.configuration,
        loaded.base_dir,
        cases=loaded.cases,
    )
    run.finish(reason, canonical_json(result.to_json()))
    run.emit(
        RunFinished(
            run_id=run.run_id,
            status=result.status,
            reason=reason,
            outcome=outcome_of(result),
        )
    )
    return result


def _one_difference(difference: Estimate | None, gate: GateReport) -> Estimate | None:
    """Return the difference from the defaults with the gate's interval, so that both agree."""
    if difference is None or gate.opponent != "default" or gate.level is None:
        return difference
    return replace(difference, low=gate.low, high=gate.high, level=1.0 - 2.0 * gate.level)


def _judged(
    run: Run, recommendation: Recommendation | None, final: Final
) -> tuple[Candidate | None, GateReport | None, Candidate | None, GateLook | None]:
    """Return the search's best, its verdict, its opponent if that is kept, and the look."""
    if recommendation is None:
        return None, None, None, None
    candidate = run.state.search.archive.members[recommendation.candidate_id].candidate
    champion, baseline = champion_of_run(run), run.study.baseline
    opponent = champion or baseline
    look = None if opponent is None else _look(run, final, candidate, opponent)
    n_looks: Mapping[str, int] = {}
    if look is not None and look.n and look.candidate_id != look.champion_id:
        with RuntimeStore(run.store.path) as store:
            n_looks = looks_before(store, look)
    gate = judge(
        run.configuration.promotion,
        final,
        candidate,
        opponent,
        is_champion=champion is not None,
        n_looks=n_looks,
    )
    if gate is None:  # without a comparison, the candidate cannot replace the champion
        is_other = champion is not None and champion.candidate_id != candidate.candidate_id
        return candidate, None, champion if is_other else None, look
    if gate.opponent == "champion":
        gate = replace(gate, champion_id=run.record.tags.get(ID_TAG))
    kind = kind_of(
        gate,
        usd=final.answer_usd(candidate.candidate_id),
        other_usd=final.answer_usd(gate.opponent_id),
    )
    return candidate, gate, None if is_recommended(kind) else opponent, look


def _publish(
    run: Run,
    recommendation: Recommendation | None,
    final: Final,
    *,
    recommended: Candidate | None,
) -> None:
    """Publish the evaluations of the final test and the final posteriors."""
    evaluations = [evaluation for trial in final.trials for evaluation in trial.evaluations]
    n_generations = run.next_generation
    recommended_id = None if recommended is None else recommended.candidate_id
    estimates: list[Row] = posterior_rows(
        run.run_id,
        None,
        recommendation,
        n_generations=n_generations,
        recommended_id=recommended_id,
    )
    roles: tuple[Role, ...] = ("holdout", "fresh")
    for candidate_id in (trial.candidate.candidate_id for trial in final.trials):
        estimates += [
            measured_row(
                run.run_id,
                candidate_id,
                role,
                estimate,
                n_generations=n_generations,
                recommended=candidate_id == recommended_id,
            )
            for role in roles
            if (estimate := final.estimate(candidate_id, role)) is not None
        ]
    publish_final(run, evaluations, estimates=estimates)
