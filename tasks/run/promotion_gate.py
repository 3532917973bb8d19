"""The promotion gate at the end of a run: the candidate handed over against the champion."""

import math
from collections.abc import Mapping, Sequence

from convergence_core.config import Configuration
from convergence_core.gate import PairedGate
from convergence_core.gate.intervals import grouped
from convergence_core.records import Candidate, Trial, sha256_hex
from convergence_core.result import GateReport, RunResult
from tasks.run.run import Run
from tasks.serving.promotion import put_on_offer
from tasks.store.clock import wall_clock_us
from tasks.store.runtime.promotions import save_look, set_champion
from tasks.store.runtime.rows import Champion, GateLook
from tasks.store.runtime.runtime_store import RuntimeStore


def judge(
    configuration: Configuration,
    trials: Sequence[Trial],
    *,
    candidate_id: str | None,
    opponent: Candidate | None,
    is_champion: bool,
    weights: Mapping[str, float],
    groups: Mapping[str, str] | None = None,
) -> GateReport | None:
    """Return what the held-out cases say about replacing the opponent; ``None``: nothing to compare.

    Args:
        configuration: whose ``promotion`` it is.
        trials: the re-estimation.
        candidate_id: the candidate handed over; ``None``: there is none.
        opponent: the champion, or the defaults; ``None``: neither exists.
        is_champion: which of both.
        weights: case → weight.
        groups: case → group of cases that are alike: the mean difference of each is one bet.
    """
    if candidate_id is None or opponent is None or opponent.candidate_id == candidate_id:
        return None
    own = _held_out(trials, candidate_id)
    other = _held_out(trials, opponent.candidate_id)
    known = groups or {}
    # By hash: an order that knows nothing of the rewards.
    cases = sorted(
        own.keys() & other.keys(), key=lambda case: sha256_hex(f"gate:{known.get(case, case)}")
    )
    if not cases:
        return None
    promotion = configuration.promotion
    units = grouped(
        [own[case] - other[case] for case in cases],
        [weights.get(case, 1.0) for case in cases],
        [known.get(case) for case in cases],
    )
    verdict = PairedGate(alpha=promotion.alpha, min_effect=promotion.min_effect).judge(
        units.values, weights=units.weights
    )
    return GateReport(
        decision=verdict.decision,
        opponent="champion" if is_champion else "default",
        opponent_id=opponent.candidate_id,
        n_cases=len(cases),
        n_groups=verdict.n if verdict.n < len(cases) else None,
        mean=verdict.mean,
        low=verdict.low,
        high=verdict.high,
        alpha=promotion.alpha,
        min_effect=promotion.min_effect,
        log_e=verdict.log_e_better,
        log_threshold=verdict.log_threshold,
        p_value=verdict.p_value,
        n_to_verdict=verdict.n_to_verdict,
    )


def _held_out(trials: Sequence[Trial], candidate_id: str) -> dict[str, float]:
    """Return case → mean reward over repeats of the held-out cells."""
    seen: dict[str, list[float]] = {}
    for trial in trials:
        if trial.candidate.candidate_id != candidate_id:
            continue
        for evaluation in trial.evaluations:
            if evaluation.cell.role == "holdout" and evaluation.reward is not None:
                seen.setdefault(evaluation.cell.case_id, []).append(evaluation.reward)
    return {case: math.fsum(rewards) / len(rewards) for case, rewards in seen.items()}


def record(run: Run, result: RunResult, report: GateReport, winner: Candidate) -> None:
    """Store the look; where no person is asked, crown the candidate and put it on offer."""
    with RuntimeStore(run.store.path) as store:
        is_new = save_look(
            store,
            GateLook(
                system=run.record.name,
                kind="holdout",
                candidate_id=winner.candidate_id,
                champion_id=report.opponent_id,
                run_id=run.run_id,
                decision=report.decision,
                n=report.n_cases,
                log_e=report.log_e,
                log_threshold=report.log_threshold,
                details={
                    "opponent": report.opponent,
                    "mean": report.mean,
                    "low": report.low,
                    "high": report.high,
                    "alpha": report.alpha,
                    "min_effect": report.min_effect,
                    "label": run.label,
                },
                created_us=wall_clock_us(),
            ),
        )
        adopts = not run.configuration.promotion.require_adoption
        if is_new and adopts and report.decision == "promote":
            put_on_offer(store, result)
            set_champion(
                store,
                Champion(
                    system=run.record.name,
                    candidate_id=winner.candidate_id,
                    params=dict(winner.params),
                    run_id=run.run_id,
                    reason=f"promoted by run {run.label} without being asked",
                    created_us=wall_clock_us(),
                ),
            )
