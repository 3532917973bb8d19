"""Thoughts, predictions and updates as rows of tables, and the replay read back from them.

Pure: the same lesson makes the same rows, so publishing a generation twice writes the same bytes.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from convergence_core.ports import Row
from convergence_core.records import Json, canonical_json, sha256_hex
from convergence_core.rlp.commitments import SILENT_ARM, Commitment, Forecasts, Thought
from convergence_core.rlp.gain import interval_of
from convergence_core.rlp.learner import RlpState, RlpUpdate
from convergence_core.rlp.replay import Replay, ReplayRow
from convergence_core.rlp.strategies import NO_THOUGHT

POLICY: Final = "rlp"
STATISTICAL_ARM: Final = "posterior"
"""Arm of a commitment: the search's own posterior."""

REPLAY_SQL: Final = """
    WITH texts AS (
      SELECT payload_sha256, min(text) AS text FROM payloads
      WHERE run_id = $run_id AND kind = 'thought' GROUP BY payload_sha256)
    SELECT p.*, t.generation AS thought_generation, t.agent_id, t.text_sha256, t.prompt_sha256,
           t.created_at AS thought_at, t.log_policy, t.tokens_out, t.cost_usd, x.text
    FROM predictions p JOIN thoughts t USING (run_id, thought_id)
         LEFT JOIN texts x ON x.payload_sha256 = t.text_sha256
    WHERE p.run_id = $run_id ORDER BY p.generation, p.position"""
"""Everything the replay holds, oldest first; one text may be in several generations' payloads."""


def thought_rows(
    run_id: str, commitment: Commitment, lesson: RlpUpdate, weights: Mapping[str, float]
) -> list[Row]:
    """Return the rows of a generation's thoughts.

    Args:
        run_id: the run.
        commitment: of the generation.
        lesson: what it taught.
        weights: thought → probability of a place that its strategy had.
    """
    rows: list[Row] = []
    for thought in commitment.thoughts:
        own = [
            row
            for row in lesson.rows
            if row.thought_id == thought.thought_id and not row.is_rescored
        ]
        spread = interval_of([row.gain for row in own])
        forecasts = commitment.forecasts.get(thought.thought_id, {})
        means = [float(commitment.scale.mean_of(p)) for p in forecasts.values()]
        rows.append(
            {
                "run_id": run_id,
                "generation": commitment.generation,
                "thought_id": thought.thought_id,
                "agent_id": thought.strategy,
                "text_sha256": thought.sha256 or None,
                "prediction": _mean(means),
                "logp_with": _mean([float(np.log(row.p)) for row in own]),
                "logp_without": _mean([float(np.log(row.baseline)) for row in own]),
                "information_gain": lesson.rewards.get(thought.thought_id),
                "advantage": lesson.advantages.get(thought.thought_id),
                "created_at": thought.committed_us,
                "prompt_sha256": thought.prompt_sha256 or None,
                "estimator": commitment.estimator,
                "n_outcomes": len(own),
                "gain_se": None if spread is None else spread[1],
                "paper_gain": _mean([row.paper_gain for row in own]),
                "e_value": lesson.e_values.get(thought.thought_id),
                "resolution": _mean([r.resolution for r in own if r.resolution is not None]),
                "resolution_e_value": lesson.resolution_e_values.get(thought.thought_id),
                "log_policy": thought.log_old,
                "weight": weights.get(thought.thought_id),
                "tokens_out": thought.tokens,
                "cost_usd": thought.cost_usd,
                "reason": _why_unscored(thought, commitment, lesson),
                "unheard": None if thought.is_silent else commitment.why_unheard(thought),
                "dropped": "; ".join(thought.dropped) or None,
            }
        )
    return rows


def commitment_rows(
    run_id: str, commitment: Commitment, redact: Callable[[str], str] = str
) -> list[Row]:
    """Return the rows of a commitment: each thought, silence, and the statistical posterior.

    Args:
        run_id: the run.
        commitment: of the generation, before any outcome.
        redact: keeps secrets out of prompts.
    """
    arms: list[tuple[str, Thought | None, Forecasts]] = [
        (thought.thought_id, thought, commitment.forecasts.get(thought.thought_id, {}))
        for thought in commitment.thoughts
    ]
    arms += [
        (SILENT_ARM, None, commitment.no_thought),
        (STATISTICAL_ARM, None, commitment.statistical),
    ]
    subjects = canonical_json([*commitment.subjects])
    rows: list[Row] = []
    for arm, thought, forecasts in arms:
        told: dict[str, Json] = {name: [float(v) for v in p] for name, p in forecasts.items()}
        row: dict[str, object] = {
            "run_id": run_id,
            "generation": commitment.generation,
            "arm": arm,
            "agent_id": None if thought is None else thought.strategy,
            "prompt": None if thought is None else redact(thought.prompt) or None,
            "text": None if thought is None else thought.text or None,
            "text_sha256": None if thought is None else thought.sha256 or None,
            "reason": None if thought is None else thought.reason,
            "subjects_json": subjects,
            "low": commitment.scale.low,
            "high": commitment.scale.high,
            "forecasts_json": canonical_json(told),
            "cases_json": canonical_json(dict(commitment.easier))
            if arm == STATISTICAL_ARM
            else None,
            "estimator": commitment.estimator,
            "committed_at": commitment.committed_us,
        }
        rows.append({**row, "record_sha256": sha256_hex(canonical_json(row))})
    return rows


def _why_unscored(thought: Thought, commitment: Commitment, lesson: RlpUpdate) -> str | None:
    if thought.reason is not None or thought.thought_id in lesson.rewards:
        return thought.reason
    own = [note for note in commitment.notes if note.startswith(thought.thought_id)]
    return own[0] if own else "no outcome could be scored"


def prediction_rows(run_id: str, commitment: Commitment, lesson: RlpUpdate) -> list[Row]:
    """Return one row per thought and outcome."""
    return [
        {
            "run_id": run_id,
            "generation": row.generation,
            "thought_id": row.thought_id,
            "subject": row.subject,
            "position": position,
            "observed": row.observed,
            "p": row.p,
            "baseline": row.baseline,
            "gain": row.gain,
            "paper_gain": row.paper_gain,
            "crps_gain": row.crps_gain,
            "resolution": row.resolution,
            "estimator": row.estimator,
            "is_rescored": row.is_rescored,
            "is_censored": row.is_censored,
            "forecast_json": canonical_json([*row.forecast]),
            "no_thought_json": canonical_json([*row.no_thought]),
            "statistical_json": canonical_json([*row.statistical]),
            "committed_at": commitment.committed_us,
        }
        for position, row in enumerate(lesson.rows)
    ]


def update_rows(
    run_id: str, commitment: Commitment, lesson: RlpUpdate, before: RlpState, after: RlpState
) -> list[Row]:
    """Return the row of the policy's update; none where nothing was learned."""
    if lesson.update.n_steps == 0:
        return []
    names = (NO_THOUGHT, *after.strategies)
    p = after.policy.probabilities(commitment.state)
    stats = {f"p_{name}": float(value) for name, value in zip(names, p, strict=True)}
    stats |= {
        f"w_{name}": value
        for name, value in zip(("base", *after.strategies), after.weights.values, strict=True)
    }
    stats |= {
        "sigma": lesson.sigma,
        "t_cal": after.t_cal,
        "entropy": lesson.update.entropy,
        "dropped": float(lesson.update.n_dropped),
        "value": float(before.value.of(commitment.state[None])[0]),
        "log_evidence": after.evidence.log_e,
        "log_resolution": after.resolution.log_e,
        "v_model": after.mixture.weights[0],
    }
    if lesson.e_value is not None:
        stats["e_value"] = lesson.e_value
    return [
        {
            "run_id": run_id,
            "generation": commitment.generation,
            "update_id": f"{POLICY}-{commitment.generation:05d}",
            "policy": POLICY,
            "step": lesson.update.n_steps,
            "loss": lesson.update.loss,
            "kl": lesson.update.kl,
            "grad_norm": lesson.update.grad_norm,
            "stats": stats,
            "created_at": commitment.committed_us,
            "params_sha256": after.policy.sha256,
            "params_json": canonical_json(after.policy.to_json()),
        }
    ]


def text_rows(run_id: str, thoughts: Iterable[Thought]) -> list[Row]:
    """Return each distinct text once, for ``payloads``."""
    texts = {thought.sha256: thought.text for thought in thoughts if thought.sha256}
    return [
        {"run_id": run_id, "payload_sha256": key, "kind": "thought", "text": text}
        for key, text in sorted(texts.items())
    ]


def replay_of(
    rows: Sequence[Mapping[str, Any]], strategies: Sequence[str], capacity: int
) -> Replay:
    """Return the replay that rows of ``REPLAY_SQL`` hold."""
    action = {name: i for i, name in enumerate((NO_THOUGHT, *strategies))}
    thoughts: dict[str, Thought] = {}
    found = []
    for row in rows:
        if row["estimator"] == "pairwise":
            continue  # Earlier versions predicted pairs, too: two outcomes where others have ten bins.
        name = str(row["thought_id"])
        thoughts.setdefault(
            name,
            Thought(
                thought_id=name,
                generation=int(row["thought_generation"]),
                index=0,
                action=action.get(str(row["agent_id"]), 0),
                strategy=str(row["agent_id"]),
                log_old=float(row["log_policy"]),
                text=str(row["text"] or ""),
                sha256=str(row["text_sha256"] or ""),
                prompt_sha256=str(row["prompt_sha256"] or ""),
                tokens=row["tokens_out"],
                cost_usd=row["cost_usd"],
            ),
        )
        found.append(
            ReplayRow(
                generation=int(row["generation"]),
                thought_id=name,
                subject=str(row["subject"]),
                observed=int(row["observed"]),
                forecast=tuple(json.loads(row["forecast_json"])),
                no_thought=tuple(json.loads(row["no_thought_json"])),
                statistical=tuple(json.loads(row["statistical_json"])),
                p=float(row["p"]),
                baseline=float(row["baseline"]),
                gain=float(row["gain"]),
                paper_gain=float(row["paper_gain"]),
                crps_gain=float(row["crps_gain"]),
                resolution=row["resolution"],
                estimator=row["estimator"],
                is_rescored=bool(row["is_rescored"]),
                is_censored=bool(row["is_censored"]),
            )
        )
    return Replay(capacity=capacity).after(found, thoughts.values())


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
