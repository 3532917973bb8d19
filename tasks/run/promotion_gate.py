"""Promotion gate: the winner against the champion, on held-out cases."""

from convergence_core.config.models import PromotionConfig
from convergence_core.gate import PairedGate
from convergence_core.gate.intervals import grouped
from convergence_core.records import Candidate, sha256_hex
from convergence_core.result import GateReport, RunResult
from tasks.report.candidates import Final
from tasks.run.adoption import adopt
from tasks.run.run import Run
from tasks.store.clock import wall_clock_us
from tasks.store.runtime.promotions import save_look
from tasks.store.runtime.rows import GateLook
from tasks.store.runtime.runtime_store import RuntimeStore

_DETAILS = ("opponent", "mean", "low", "high", "alpha", "min_effect")
"""Of a verdict, beside the columns of its own."""


def judge(
    promotion: PromotionConfig,
    final: Final,
    candidate: Candidate,
    opponent: Candidate | None,
    *,
    is_champion: bool,
    forecasts: bool = True,
) -> GateReport | None:
    """Return what the held-out cases say about replacing the opponent; ``None``: nothing to compare.

    The mean difference of each group of cases that are alike is one bet.

    Args:
        promotion: of the configuration.
        final: the final test.
        candidate: handed over.
        opponent: the champion, or the defaults; ``None``: neither exists.
        is_champion: which of both.
        forecasts: whether it is said how many more cases a verdict takes, which takes up to half a
            second.
    """
    if opponent is None or opponent.candidate_id == candidate.candidate_id:
        return None
    own = final.rewards(candidate.candidate_id, "holdout")
    other = final.rewards(opponent.candidate_id, "holdout")
    # By hash: an order that knows nothing of the rewards.
    cases = sorted(
        own.keys() & other.keys(),
        key=lambda case: sha256_hex(f"gate:{final.groups.get(case, case)}"),
    )
    if not cases:
        return None
    units = grouped(
        [own[case] - other[case] for case in cases],
        [final.weights.get(case, 1.0) for case in cases],
        [final.groups.get(case) for case in cases],
    )
    gate = PairedGate(alpha=promotion.alpha, min_effect=promotion.min_effect)
    verdict = gate.judge(units.values, weights=units.weights)
    ahead = None
    if forecasts and verdict.decision == "undecided":
        ahead = gate.forecast(units.values, weights=units.weights)
    n_to_verdict = 0 if verdict.decision != "undecided" else None if ahead is None else ahead.n
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
        n_to_verdict=n_to_verdict,
        n_to_verdict_low=None if ahead is None else ahead.low,
        n_to_verdict_high=None if ahead is None else ahead.high,
        probability_better=verdict.probability_better,
    )


def record_verdict(run: Run, result: RunResult, gate: GateReport, found: Candidate) -> bool:
    """Store a verdict; where no person is asked, make the candidate champion and serve it.

    Returns:
        Whether it was made champion.
    """
    look = GateLook(
        system=run.record.name,
        kind="holdout",
        candidate_id=found.candidate_id,
        champion_id=gate.opponent_id,
        run_id=run.run_id,
        decision=gate.decision,
        n=gate.n_cases,
        log_e=gate.log_e,
        log_threshold=gate.log_threshold,
        details={
            **{name: getattr(gate, name) for name in _DETAILS},
            "label": run.label,
        },
        created_us=wall_clock_us(),
    )
    with RuntimeStore(run.store.path) as store:
        is_new = save_look(store, look)
        adopts = gate.decision == "promote" and not run.configuration.promotion.require_adoption
        if is_new and adopts:
            adopt(store, result, reason=f"promoted by run {run.label} without being asked")
    return adopts
