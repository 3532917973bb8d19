"""Rows of thoughts, predictions and updates, and the replay read back from them.

The same update makes the same rows, so publishing a generation twice writes the same bytes.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from convergence_core.ports import Row
from convergence_core.records import Json, canonical_json, fields_of, sha256_hex
from convergence_core.rlp.commitments import NO_THOUGHT_ARM, Commitment, Forecasts, Thought
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
    WHERE p.run_id = $run_id AND p.estimator <> 'pairwise' ORDER BY p.generation, p.position"""
"""Everything the replay holds, oldest first; one text may be in several generations' payloads. Earlier
versions predicted pairs, too (``pairwise``): two outcomes where others have ten bins."""

_COLUMNS: Final = (
    "generation", "thought_id", "subject", "observed", "p", "baseline", "gain", "resolution", "estimator", "is_rescored", "is_censored",
)  # fmt: skip
"""Of ``predictions``, as a ``ReplayRow`` has them."""
_JSON_COLUMNS: Final = ("forecast", "no_thought", "statistical")
"""The same, each under a name that ends in ``_json``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RlpStep:
    """What a generation taught, before it is committed."""

    commitment: Commitment
    update: RlpUpdate
    before: RlpState
    after: RlpState
    replay: Replay
    weights: Mapping[str, float] = field(default_factory=dict)
    """Thought → probability of a place that its strategy had."""


def step_tables(run_id: str, step: RlpStep) -> dict[str, list[Row]]:
    """Return the rows of a generation by table."""
    return {
        "payloads": _texts(run_id, step.commitment.thoughts),
        "thoughts": [_thought(run_id, thought, step) for thought in step.commitment.thoughts],
        "predictions": [
            {
                "run_id": run_id,
                "position": position,
                **fields_of(row, *_COLUMNS),
                **{f"{n}_json": canonical_json([*getattr(row, n)]) for n in _JSON_COLUMNS},
                "committed_at": step.commitment.committed_us,
            }
            for position, row in enumerate(step.update.rows)
        ],
        "policy_updates": _policy_update(run_id, step),
    }


def _thought(run_id: str, thought: Thought, step: RlpStep) -> Row:
    name, commitment, update = thought.thought_id, step.commitment, step.update
    thought_rows = [row for row in update.rows if row.thought_id == name and not row.is_rescored]
    spread = interval_of([row.gain for row in thought_rows])
    forecasts = commitment.forecasts.get(name, {})
    return {
        "run_id": run_id,
        "generation": commitment.generation,
        "thought_id": name,
        "agent_id": thought.strategy,
        "text_sha256": thought.sha256 or None,
        "prediction": _mean([float(commitment.bins.mean_of(p)) for p in forecasts.values()]),
        "information_gain": update.rewards.get(name),
        "advantage": update.advantages.get(name),
        "created_at": thought.committed_us,
        "prompt_sha256": thought.prompt_sha256 or None,
        "estimator": commitment.estimator,
        "n_outcomes": len(thought_rows),
        "gain_se": None if spread is None else spread[1],
        "e_value": update.e_values.get(name),
        "resolution": _mean(
            [row.resolution for row in thought_rows if row.resolution is not None]
        ),
        "resolution_e_value": update.resolution_e_values.get(name),
        "log_policy": thought.log_old,
        "weight": step.weights.get(name),
        "tokens_out": thought.tokens,
        "cost_usd": thought.cost_usd,
        "reason": _unscored_reason(thought, step),
        "ignored_reason": None if thought.is_no_op else commitment.ignored_reason(thought),
        "dropped": "; ".join(thought.dropped) or None,
    }


def _unscored_reason(thought: Thought, step: RlpStep) -> str | None:
    if thought.reason is not None or thought.thought_id in step.update.rewards:
        return thought.reason
    return step.commitment.note_on(thought) or "no outcome could be scored"


def commitment_rows(
    run_id: str, commitment: Commitment, redact: Callable[[str], str] = str
) -> list[Row]:
    """Return the rows of a commitment: each thought, no thought, and the statistical posterior.

    Args:
        run_id: the run.
        commitment: of the generation, before any outcome.
        redact: keeps secrets out of prompts.
    """
    blank = dict.fromkeys(("agent_id", "prompt", "text", "text_sha256", "reason"))
    arms: list[tuple[str, dict[str, str | None], Forecasts]] = [
        *(
            (t.thought_id, _text_columns(t, redact), commitment.forecasts.get(t.thought_id, {}))
            for t in commitment.thoughts
        ),
        (NO_THOUGHT_ARM, blank, commitment.no_thought),
        (STATISTICAL_ARM, blank, commitment.statistical),
    ]
    easier = canonical_json(dict(commitment.easier))
    rows: list[Row] = []
    for arm, columns, forecasts in arms:
        listed: dict[str, Json] = {name: [float(v) for v in p] for name, p in forecasts.items()}
        row: dict[str, object] = {
            "run_id": run_id,
            "generation": commitment.generation,
            "arm": arm,
            **columns,
            "subjects_json": canonical_json([*commitment.subjects]),
            "low": commitment.bins.low,
            "high": commitment.bins.high,
            "forecasts_json": canonical_json(listed),
            "cases_json": easier if arm == STATISTICAL_ARM else None,
            "estimator": commitment.estimator,
            "committed_at": commitment.committed_us,
        }
        rows.append({**row, "record_sha256": sha256_hex(canonical_json(row))})
    return rows


def _text_columns(thought: Thought, redact: Callable[[str], str]) -> dict[str, str | None]:
    return {
        "agent_id": thought.strategy,
        "prompt": redact(thought.prompt) or None,
        "text": thought.text or None,
        "text_sha256": thought.sha256 or None,
        "reason": thought.reason,
    }


def _policy_update(run_id: str, step: RlpStep) -> list[Row]:
    """Return the row of the policy's update; none where nothing was learned."""
    commitment, update, after = step.commitment, step.update, step.after
    if update.update.n_steps == 0:
        return []
    p = after.policy.probabilities(commitment.state)
    arms = zip((NO_THOUGHT, *after.strategies), p, strict=True)
    experts = zip(("base", *after.strategies), after.weights.values, strict=True)
    stats = {
        **{f"p_{name}": float(value) for name, value in arms},
        **{f"w_{name}": value for name, value in experts},
        "sigma": update.sigma,
        "t_cal": after.t_cal,
        "entropy": update.update.entropy,
        "dropped": float(update.update.n_dropped),
        "value": float(step.before.value.of(commitment.state[None])[0]),
        "log_evidence": after.evidence.log_e,
        "log_resolution": after.resolution.log_e,
        "v_model": after.mixture.weights[0],
    }
    if update.e_value is not None:
        stats["e_value"] = update.e_value
    return [
        {
            "run_id": run_id,
            "generation": commitment.generation,
            "update_id": f"{POLICY}-{commitment.generation:05d}",
            "policy": POLICY,
            "step": update.update.n_steps,
            **fields_of(update.update, "loss", "kl", "grad_norm"),
            "stats": stats,
            "created_at": commitment.committed_us,
            "params_sha256": after.policy.sha256,
            "params_json": canonical_json(after.policy.to_json()),
        }
    ]


def _texts(run_id: str, thoughts: Iterable[Thought]) -> list[Row]:
    """Return each distinct text once."""
    texts = {thought.sha256: thought.text for thought in thoughts if thought.sha256}
    return [
        {"run_id": run_id, "payload_sha256": key, "kind": "thought", "text": text}
        for key, text in sorted(texts.items())
    ]


def replay_of(rows: Sequence[Mapping[str, Any]], strategies: Sequence[str]) -> Replay:
    """Return the replay that rows of ``REPLAY_SQL`` hold."""
    action = {name: i for i, name in enumerate((NO_THOUGHT, *strategies))}
    thoughts = {
        row["thought_id"]: Thought(
            thought_id=row["thought_id"],
            generation=row["thought_generation"],
            index=0,
            action=action.get(row["agent_id"], 0),
            strategy=row["agent_id"],
            log_old=row["log_policy"],
            text=row["text"] or "",
            sha256=row["text_sha256"] or "",
            prompt_sha256=row["prompt_sha256"] or "",
            tokens=row["tokens_out"],
            cost_usd=row["cost_usd"],
        )
        for row in rows
    }
    entries = []
    for row in rows:
        columns: dict[str, Any] = {name: row[name] for name in _COLUMNS}
        columns |= {name: tuple(json.loads(row[f"{name}_json"])) for name in _JSON_COLUMNS}
        entries.append(ReplayRow(**columns))
    return Replay().after(entries, thoughts.values())


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
