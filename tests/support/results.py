"""Made-up run results for tests of reports."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from convergence_core.explanation.records import (
    Discard,
    Discards,
    Effect,
    EffectPoint,
    Explanation,
    ParameterInteraction,
    Surface,
)
from convergence_core.records import Params
from convergence_core.result import (
    CandidateReport,
    CurvePoint,
    Estimate,
    Failure,
    LeaderboardRow,
    MetricInfo,
    RunResult,
    Within,
)
from tasks.report.blocks import Plot, Plots
from tasks.report.document import document

_STEMMERS = ("none", "porter", "english")


def made_up_result(n_candidates: int = 120, n_generations: int = 8) -> RunResult:
    """Return the result of a search over three parameters, with every part filled."""
    rows = _rows(n_candidates)
    winner, default = rows[0], rows[n_candidates // 2]
    return RunResult(
        run_id="01JD0000000000000000007F3A",
        label="stdlib_search-7f3a",
        system="stdlib_search",
        status="done",
        reason=f"all {n_generations} generations were run",
        algorithm="mab_evolution",
        seed=7,
        generations_run=n_generations,
        n_candidates=n_candidates,
        n_evaluations=13_640,
        n_calls=13_702,
        n_cached=12,
        n_failed=41,
        n_missing=3,
        n_skipped=0,
        cost_usd=4.2187,
        started_us=1_780_000_000_000_000,
        ended_us=1_780_000_097_300_000,
        n_search_cases=110,
        n_holdout_cases=110,
        facts={"python": "3.11.9", "code": "0.1.0", "cases sha256": "9f" * 32},
        metrics=(
            MetricInfo(name="ndcg_at_10", direction="higher", weight=1.0),
            MetricInfo(name="latency_ms", direction="lower", weight=0.0),
        ),
        winner=_report(winner, 0.61, 0.64),
        baseline=_report(default, 0.55, 0.56),
        has_defaults=True,
        difference=Estimate(mean=0.06, low=0.02, high=0.10, n_cases=110),
        difference_fresh=Estimate(mean=0.08, low=0.05, high=0.11, n_cases=110),
        within=Within(delta=0.01, probability=0.83),
        leaderboard=rows,
        curve=_curve(n_generations),
        effects=_effects(),
        explanation=_explanation(rows),
        failures=(
            Failure(
                reason="timeout",
                fault="infrastructure",
                n=3,
                example="no answer within 30 s after 4 attempts",
            ),
            Failure(
                reason="ValueError",
                fault="candidate",
                n=38,
                example="ValueError: char_ngram must not exceed the word",
            ),
        ),
    )


def bare_result() -> RunResult:
    """Return a run with a winner and nothing beside it: no default, no held-out cases."""
    full = made_up_result(n_candidates=3, n_generations=1)
    assert full.winner is not None
    return replace(
        full,
        n_holdout_cases=0,
        cost_usd=None,
        n_failed=0,
        n_missing=0,
        baseline=None,
        has_defaults=False,
        difference=None,
        difference_fresh=None,
        within=None,
        winner=replace(full.winner, fresh=None, holdout=None, metrics={}),
        curve=(),
        effects=(),
        explanation=None,
        failures=(),
    )


def failed_result() -> RunResult:
    """Return a run in which nothing got a reward."""
    return replace(
        bare_result(),
        winner=None,
        leaderboard=(),
        n_failed=330,
        n_missing=330,
        failures=(
            Failure(reason="http_503", fault="infrastructure", n=330, example="503 from server"),
        ),
    )


def _params(i: int) -> Params:
    return {
        "k1": round(0.2 + 2.8 * ((i * 37) % 100) / 99, 3),
        "stemmer": _STEMMERS[i % 3],
        "removes_stop_words": i % 2 == 0,
    }


def _rows(n: int) -> tuple[LeaderboardRow, ...]:
    rng = np.random.default_rng(5)
    means = np.sort(rng.beta(6, 5, n))[::-1] * 0.9
    return tuple(
        LeaderboardRow(
            rank=i + 1,
            candidate_id=f"{i:016x}",
            label=" ".join(f"{name}={value}" for name, value in _params(i).items()),
            params=_params(i),
            mean=float(mean),
            low=float(max(0, mean - 0.04)),
            high=float(min(1, mean + 0.04)),
            cautious=float(mean - 0.02),
            n_cells=110,
            n_cases=110,
            n_failed=1 if i % 40 == 1 else 0,
            metrics={
                "ndcg_at_10": float(mean),
                "latency_ms": float(2 + 30 * mean**2 * rng.uniform(0.5, 1.5)),
            },
            origin="default" if i == n // 2 else "crossover",
            generation=i % 8,
        )
        for i, mean in enumerate(means)
    )


def _report(row: LeaderboardRow, holdout: float, fresh: float) -> CandidateReport:
    def around(mean: float, half: float) -> Estimate:
        return Estimate(mean=mean, low=mean - half, high=mean + half, n_cases=110)

    latency = row.metrics["latency_ms"]
    return CandidateReport(
        candidate_id=row.candidate_id,
        label=row.label,
        params=row.params,
        origin=row.origin,
        generation=row.generation,
        search=Estimate(mean=row.mean, low=row.low, high=row.high, n_cases=110),
        fresh=around(fresh, 0.03),
        holdout=around(holdout, 0.04),
        metrics={
            "search": row.metrics,
            "fresh": {"ndcg_at_10": fresh, "latency_ms": latency * 1.02},
            "holdout": {"ndcg_at_10": holdout, "latency_ms": latency * 0.97},
        },
    )


def _curve(n: int) -> tuple[CurvePoint, ...]:
    means = [0.72 - 0.18 * math.exp(-g / 2) for g in range(n)]
    return tuple(
        CurvePoint(
            generation=g,
            n_evaluations=1650,
            cumulative_calls=1660 * (g + 1),
            best_mean=mean,
            low=mean - 0.05 / math.sqrt(g + 1),
            high=mean + 0.05 / math.sqrt(g + 1),
            asked_mean=mean - 0.12,
            cumulative_usd=0.52 * (g + 1),
        )
        for g, mean in enumerate(means)
    )


def told(share: float, low: float, high: float) -> Any:
    """Return what an effect explains, as its fields."""
    return {
        "share": share,
        "share_low": low,
        "share_high": high,
        "average": 0.56,
        "is_sure": low > 0,
    }


def _explanation(rows: tuple[LeaderboardRow, ...]) -> Explanation:
    n = len(rows)
    last = rows[-1]
    return Explanation(
        surface=Surface(
            average=0.56,
            average_low=0.54,
            average_high=0.58,
            sd=0.06,
            share_single=0.65,
            share_own=0.05,
            n_pairs=3,
            interactions=(
                ParameterInteraction(
                    parameters=("k1", "stemmer"),
                    share=0.06,
                    low=0.02,
                    high=0.11,
                    is_sure=True,
                    labels=("1", "porter"),
                    effect=0.03,
                    effect_low=0.01,
                    effect_high=0.05,
                ),
            ),
        ),
        discards=Discards(
            bound=0.05 / n,
            error=0.05,
            n_candidates=n,
            n_left=88 if n > 88 else 0,
            n_waiting=6,
            n_elites=25,
            left_by_cells=((5, 60), (10, 28)),
            closest=(
                Discard(
                    candidate_id=last.candidate_id,
                    label=last.label,
                    mean=last.mean,
                    low=last.low,
                    high=last.high,
                    n_cells=5,
                    probability=0.0003,
                ),
            ),
        ),
    )


def _effects() -> tuple[Effect, ...]:
    def point(label: str, x: float | None, mean: float, n: int) -> EffectPoint:
        half = 0.1 / math.sqrt(n)
        return EffectPoint(
            label=label, x=x, mean=mean, low=mean - half, high=mean + half, n_candidates=n
        )

    return (
        Effect(
            parameter="k1",
            kind="number",
            **told(0.22, 0.12, 0.33),
            points=tuple(
                point(f"{x:g}", x, 0.6 - 0.05 * (x - 1.4) ** 2, n)
                for x, n in ((0.5, 14), (1.0, 31), (1.5, 40), (2.1, 22), (2.7, 13))
            ),
        ),
        Effect(
            parameter="stemmer",
            kind="choice",
            **told(0.41, 0.30, 0.52),
            points=tuple(
                point(name, None, mean, n)
                for name, mean, n in zip(_STEMMERS, (0.51, 0.58, 0.6), (20, 44, 56), strict=True)
            ),
        ),
        Effect(
            parameter="removes_stop_words",
            kind="choice",
            **told(0.02, 0.0, 0.06),
            points=(point("true", None, 0.57, 70), point("false", None, 0.55, 50)),
        ),
    )


def plots(result: RunResult, name: str) -> list[Plot]:
    """Return a report's plots whose names begin so."""
    return [
        plot
        for block in document(result)
        if isinstance(block, Plots)
        for plot in block.plots
        if plot.name.startswith(name)
    ]
