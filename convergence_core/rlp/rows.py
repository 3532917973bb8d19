"""Rows of thoughts, forecasts and updates.

The same update gives the same rows, so publishing a generation twice writes the same bytes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from convergence_core.ports import Row, payloads_of
from convergence_core.records import Json, canonical_json, fields_of, sha256_hex
from convergence_core.rlp.commitments import ACTIONS, Commitment
from convergence_core.rlp.gain import interval_of
from convergence_core.rlp.learner import RlpState, RlpUpdate
from convergence_core.rlp.quantiles import Quantiles

POLICY: Final = "rlp"
STATISTICAL_ARM: Final = "posterior"
"""Arm of a commitment: the search's own posterior."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RlpStep:
    """Result of learning from a generation, not yet committed."""

    commitment: Commitment
    update: RlpUpdate
    before: RlpState
    after: RlpState


def step_tables(run_id: str, step: RlpStep) -> dict[str, list[Row]]:
    """Return the rows of a generation by table; empty if the model was not called."""
    commitment, thought = step.commitment, step.commitment.thought
    if thought is None:
        return {}
    return {
        "payloads": payloads_of(run_id, {thought.text: "thought"} if thought.sha256 else {}),
        "thoughts": [_thought(run_id, step)],
        "predictions": [
            {
                "run_id": run_id,
                "generation": commitment.generation,
                "thought_id": thought.thought_id,
                "position": position,
                **fields_of(row, "subject", "outcome", "p", "baseline", "gain", "resolution"),
                "is_own": row.posterior is None,
                "forecast_json": _quantiles(row.forecast),
                "statistical_json": _quantiles(row.posterior),
                "committed_at": commitment.committed_us,
            }
            for position, row in enumerate(step.update.rows)
        ],
        "policy_updates": _policy_update(run_id, step),
    }


def _quantiles(forecast: Quantiles | None) -> str | None:
    return None if forecast is None else canonical_json([*forecast.to_json()])


def _thought(run_id: str, step: RlpStep) -> Row:
    thought, update = step.commitment.thought, step.update
    assert thought is not None  # noqa: S101 - checked by the caller
    spread = interval_of(update.gains)
    resolutions = [row.resolution for row in update.rows if row.resolution is not None]
    reason = thought.reason
    if reason is None and update.reward is None and thought.kind in ACTIONS:
        reason = "no outcome could be scored"
    return {
        "run_id": run_id,
        "generation": thought.generation,
        "thought_id": thought.thought_id,
        "agent_id": thought.kind,
        "text_sha256": thought.sha256 or None,
        "information_gain": update.reward,
        "advantage": update.advantage,
        "created_at": thought.committed_us,
        "prompt_sha256": thought.prompt_sha256 or None,
        "n_outcomes": len(update.gains),
        "gain_se": None if spread is None else spread[1],
        "e_value": update.e_value,
        "log_policy": thought.log_propensity,
        "weight": step.before.weight,
        "tokens_out": thought.tokens,
        "cost_usd": thought.cost_usd,
        "reason": reason,
        "dropped": "; ".join(thought.dropped) or None,
        "resolution": sum(resolutions) / len(resolutions) if resolutions else None,
        "resolution_e_value": update.resolution_e_value,
        "n_own": sum(row.posterior is None for row in update.rows),
    }


def commitment_rows(
    run_id: str, commitment: Commitment, redact: Callable[[str], str] = str
) -> list[Row]:
    """Return the rows of a commitment: the thought, and the search's posterior.

    Args:
        run_id: Id of the run.
        commitment: Commitment of the generation, before any outcome.
        redact: Removes secrets from prompts.
    """
    thought = commitment.thought
    columns = dict.fromkeys(
        ("agent_id", "prompt", "text", "text_sha256", "reason", "settings_json")
    )
    arms: list[tuple[str, dict[str, str | None], Mapping[str, Quantiles]]] = [
        (STATISTICAL_ARM, columns, commitment.posterior)
    ]
    if thought is not None:
        settings: Json = [
            [
                {**setting.params},
                None if setting.forecast is None else [*setting.forecast.to_json()],
            ]
            for setting in thought.settings
        ]
        arms.insert(0, (thought.thought_id, {
            "agent_id": thought.kind,
            "prompt": redact(thought.prompt) or None,
            "text": thought.text or None,
            "text_sha256": thought.sha256 or None,
            "reason": thought.reason,
            "settings_json": canonical_json(settings),
        }, thought.forecasts))  # fmt: skip
    rows: list[Row] = []
    for arm, texts, forecasts in arms:
        listed: dict[str, Json] = {name: [*q.to_json()] for name, q in forecasts.items()}
        row: dict[str, object] = {
            "run_id": run_id,
            "generation": commitment.generation,
            "arm": arm,
            **texts,
            "subjects_json": canonical_json([*commitment.subjects]),
            "forecasts_json": canonical_json(listed),
            "cases_json": canonical_json(dict(commitment.easier))
            if arm == STATISTICAL_ARM
            else None,
            "committed_at": commitment.committed_us,
        }
        rows.append({**row, "record_sha256": sha256_hex(canonical_json(row))})
    return rows


def _policy_update(run_id: str, step: RlpStep) -> list[Row]:
    """Return the row of the policy's update; empty if nothing was learned."""
    commitment, update, after = step.commitment, step.update, step.after
    if update.update.n_steps == 0:
        return []
    p = after.propensities(commitment.state)
    stats = {
        **{f"p_{name}": float(value) for name, value in zip(ACTIONS, p, strict=True)},
        "w_base": 1.0 - after.weight,
        "w_model": after.weight,
        "sigma": update.sigma,
        "entropy": update.update.entropy,
        "dropped": float(update.update.n_dropped),
        "value": float(step.before.value.of(commitment.state[None])[0]),
        "log_evidence": after.evidence.log_e,
        "log_resolution": after.resolution.log_e,
    }
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
