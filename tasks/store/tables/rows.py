"""Conversion of records to rows of tables."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from convergence_core.ports import Checkpoint, Row, payloads_of
from convergence_core.records import (
    Candidate,
    Evaluation,
    Role,
    canonical_json,
    fields_of,
    sha256_hex,
)

if TYPE_CHECKING:
    from convergence_core.result import Estimate
    from convergence_core.search.recommend import Recommendation


MAX_ESTIMATES = 500
"""Ranks whose posterior a generation stores; the end of a run stores all."""
_EVALUATION = (
    *("generation", "eval_id", "attempt", "status", "fault", "error_type", "error", "model"),
    *("provider", "reward", "latency_ms", "first_token_ms", "cost_usd", "price_usd"),
    *("call_key", "cached", "recording_url"),
)
"""Columns of ``evaluations`` that are fields of an ``Evaluation``."""
_INTERVAL = ("mean", "low", "high", "n_cases")
_CHECKPOINT = ("rng_state_json", "sampler_state_json", "progress_json")


def candidate_rows(
    run_id: str, generation: int | None, candidates: Iterable[Candidate]
) -> list[Row]:
    """Return the rows of candidates first evaluated in a generation, ``None`` for a test."""
    return [
        {
            "run_id": run_id,
            "candidate_id": candidate.candidate_id,
            "generation": generation,
            "origin": candidate.origin,
            "parent_ids": list(candidate.parent_ids),
            "params_json": canonical_json(dict(candidate.params)),
            "params_sha256": sha256_hex(canonical_json(dict(candidate.params))),
        }
        for candidate in candidates
    ]


def evaluation_row(run_id: str, evaluation: Evaluation, *, weight: float | None = None) -> Row:
    """Return one row of ``evaluations``; ``weight`` is the weight of its case, 1 if ``None``."""
    cell, usage = evaluation.cell, evaluation.usage
    return {
        "run_id": run_id,
        **fields_of(evaluation, *_EVALUATION),
        **fields_of(cell, "candidate_id", "case_id", "role"),
        "replicate": cell.repeat,
        "weight": weight,
        "metrics": dict(evaluation.metrics),
        "tokens_in": usage.prompt_tokens,
        "tokens_out": usage.completion_tokens,
        "started_at": evaluation.started_us,
        "ended_at": evaluation.ended_us,
        "dropped": "; ".join(evaluation.dropped) or None,
        "request_sha256": _hash_or_none(evaluation.request_text),
        "payload_sha256": _hash_or_none(evaluation.response_text),
        "thinking_sha256": _hash_or_none(evaluation.thinking_text),
    }


def payload_rows(run_id: str, evaluations: Iterable[Evaluation]) -> list[Row]:
    """Return a row per distinct request, response and thinking, ordered by hash."""
    kinds = {
        text: kind
        for evaluation in evaluations
        for kind, text in (
            ("prompt", evaluation.request_text),
            ("response", evaluation.response_text),
            ("thinking", evaluation.thinking_text),
        )
        if text is not None
    }
    return payloads_of(run_id, kinds)


def posterior_rows(
    run_id: str,
    generation: int | None,
    recommendation: "Recommendation | None",
    *,
    n_generations: int,
    baseline_id: str | None = None,
    recommended_id: str | None = None,
) -> list[Row]:
    """Return the posteriors of the candidates, best first; none without a recommendation.

    Args:
        run_id: id of the run.
        generation: generation before the recommendation; ``None`` at the run's end, which stores
            all candidates.
        recommendation: recommendation with the ranking.
        n_generations: committed generations behind it.
        baseline_id: id of the defaults, which are stored at any rank.
        recommended_id: id of the resulting candidate; ``None`` means the recommendation's.
    """
    if recommendation is None:
        return []
    recommended_id = recommended_id or recommendation.candidate_id
    return [
        {
            "run_id": run_id,
            "generation": generation,
            **fields_of(ranked, *_INTERVAL, "candidate_id", "cautious", "feasible"),
            "role": "search",
            "n_generations": n_generations,
            "rank": rank,
            "level": recommendation.level,
            "recommended": ranked.candidate_id == recommended_id,
        }
        for rank, ranked in enumerate(recommendation.ranking, 1)
        if generation is None or rank <= MAX_ESTIMATES or ranked.candidate_id == baseline_id
    ]


def measured_row(
    run_id: str,
    candidate_id: str,
    role: Role,
    estimate: "Estimate",
    *,
    n_generations: int,
    recommended: bool,
) -> Row:
    """Return a candidate's re-estimated mean on the cells of a role."""
    return {
        "run_id": run_id,
        "generation": None,
        "candidate_id": candidate_id,
        "role": role,
        "n_generations": n_generations,
        **fields_of(estimate, *_INTERVAL, "level"),
        "recommended": recommended,
    }


def generation_row(
    run_id: str,
    generation: int,
    evaluations: Sequence[Evaluation],
    checkpoint: Checkpoint,
    *,
    recommendation: "Recommendation | None" = None,
    flow_run_id: str | None,
    partial: bool,
    fallback_us: int,
) -> Row:
    """Return the commit marker of a generation.

    Its times are those of its first and last call, so that publishing twice gives the same row;
    without calls they are ``fallback_us``. ``recommendation`` is the one after the generation,
    ``None`` if there is no answer yet.
    """
    per_candidate: dict[str, list[float]] = {}
    for evaluation in evaluations:
        if evaluation.reward is not None:
            per_candidate.setdefault(evaluation.cell.candidate_id, []).append(evaluation.reward)
    means = [sum(rewards) / len(rewards) for rewards in per_candidate.values()]
    costs = [e.cost_usd for e in evaluations if e.cost_usd is not None]
    starts = [e.started_us for e in evaluations if e.started_us is not None]
    ends = [e.ended_us for e in evaluations if e.ended_us is not None]
    return {
        "run_id": run_id,
        "generation": generation,
        "started_at": min(starts, default=fallback_us),
        "ended_at": max(ends, default=fallback_us),
        "status": "partial" if partial else "done",
        "n_candidates": len({e.cell.candidate_id for e in evaluations}),
        "n_evaluations": len(evaluations),
        "raw_best_reward": max(means, default=None),
        "raw_mean_reward": sum(means) / len(means) if means else None,
        "posterior_mean": _mean_of_evaluated(evaluations, recommendation),
        "cost_usd": sum(costs) if costs else None,
        "prefect_flow_run_id": flow_run_id,
        **fields_of(checkpoint, *_CHECKPOINT),
    }


def _mean_of_evaluated(
    evaluations: Sequence[Evaluation], recommendation: "Recommendation | None"
) -> float | None:
    """Return the average posterior mean of the evaluated candidates; ``None`` if none is known."""
    candidate_ids = {evaluation.cell.candidate_id for evaluation in evaluations}
    ranking = () if recommendation is None else recommendation.ranking
    means = [ranked.mean for ranked in ranking if ranked.candidate_id in candidate_ids]
    return sum(means) / len(means) if means else None


def _hash_or_none(text: str | None) -> str | None:
    return None if text is None else sha256_hex(text)
