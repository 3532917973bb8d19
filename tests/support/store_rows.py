"""Rows of made-up runs for tests of the store; a generation's rows depend on its number alone."""

from typing import Any

from convergence_core.ports import Row, RunRecord

RUN = "01J8ZC0000000000000000ABCD"
T0 = 1_760_000_000_000_000
"""A moment in 2025, in microseconds."""


def run_record(run_id: str = RUN, **changes: Any) -> RunRecord:
    fields: dict[str, Any] = {
        "run_id": run_id,
        "name": "bot",
        "label": f"bot-{run_id[-4:].lower()}",
        "status": "running",
        "started_us": T0,
        "config_json": "{}",
        "config_sha256": "0" * 64,
        "base_dir": "/somewhere",
        "search_space_json": "{}",
        "cases_sha256": "1" * 64,
        "seed": 7,
        "code_version": "0.1.0",
    }
    return RunRecord(**(fields | changes))


def ahead_tables(
    run_id: str = RUN, generation: int = 0, text: str = "thought"
) -> dict[str, list[Row]]:
    """Return what is written of a generation before it is evaluated."""
    return {
        "commitments": [
            {"run_id": run_id, "generation": generation, "arm": arm, "text": f"{text} {arm}"}
            for arm in ("t1", "none", "posterior")
        ]
    }


def generation_tables(
    run_id: str = RUN, generation: int = 0, n: int = 6, text: str = "answer"
) -> dict[str, list[Row]]:
    """Return a generation of two new candidates with ``n`` evaluations between them."""
    candidates = [f"{generation:04d}-{i}" for i in range(2)]
    evaluations = evaluation_rows(run_id, generation, candidates, n)
    return {
        "candidates": [
            {
                "run_id": run_id,
                "candidate_id": candidate,
                "generation": generation,
                "origin": "sample",
                "parent_ids": [],
                "params_json": f'{{"model":"small","t":{i / 2}}}',
                "params_sha256": f"{i:064x}",
            }
            for i, candidate in enumerate(candidates)
        ],
        "evaluations": evaluations,
        "estimates": estimate_rows(run_id, generation),
        "attempts": attempt_rows(evaluations),
        "payloads": [
            {
                "run_id": run_id,
                "payload_sha256": row["payload_sha256"],
                "kind": "response",
                "text": f"{text} {row['eval_id']}",
            }
            for row in evaluations
        ],
        "generations": [
            {
                "run_id": run_id,
                "generation": generation,
                "started_at": T0,
                "ended_at": T0 + 1,
                "status": "done",
                "n_candidates": min(n, 2),
                "n_evaluations": n,
                "raw_best_reward": 0.5 if n > 1 else 0.0,
                "raw_mean_reward": 0.25 if n > 1 else 0.0,
                "cost_usd": n / 4,
                "rng_state_json": f'{{"state":{generation}}}',
                "sampler_state_json": "{}",
                "progress_json": "{}",
            }
        ],
    }


def thought_tables(run_id: str = RUN, generation: int = 0) -> dict[str, list[Row]]:
    """Return one thought of a generation, what it foretold, and the update that it taught."""
    key: Row = {"run_id": run_id, "generation": generation}
    return {
        "thoughts": [
            {**key, "thought_id": "thought-0", "agent_id": "notes", "information_gain": 0.3}
        ],
        "predictions": [
            {**key, "thought_id": "thought-0", "subject": "0000-0", "outcome": 0.7, "p": 0.6}
        ],
        "policy_updates": [
            {**key, "update_id": "0", "policy": "rlp", "step": 4, "stats": {"p_notes": 0.2}}
        ],
    }


def preference_tables(run_id: str = RUN, generation: int = 0) -> dict[str, list[Row]]:
    """Return one judged pair of a generation, its round, and one item of the judge's audit."""
    key: Row = {"run_id": run_id, "generation": generation}
    return {
        "preferences": [
            {**key, "pair_id": "pair-0", "round": 0, "position": 0, "p12": 0.8, "p21": 0.7}
        ],
        "preference_rounds": [{**key, "round": 0, "n_kept": 1, "dropped": {"margin": 2.0}}],
        "preference_audits": [{**key, "item_id": "item-0", "case_id": "case-0", "p_right": 0.9}],
        "mutations": [{**key, "mutation_id": "m0", "position": 0, "verdict": "kept"}],
    }


def estimate_rows(run_id: str, generation: int) -> list[Row]:
    """Return a posterior for each candidate so far, best first: those of reward 0.5, then of 0."""
    candidates = [f"{g:04d}-{i}" for i in (1, 0) for g in range(generation + 1)]
    return [
        {
            "run_id": run_id,
            "generation": generation,
            "candidate_id": candidate,
            "role": "search",
            "n_generations": generation + 1,
            "rank": rank,
            "mean": 0.5 / rank,
            "low": 0.4 / rank,
            "high": 0.6 / rank,
            "level": 0.95,
            "cautious": 0.45 / rank,
            "n_cases": 3,
            "recommended": rank == 1,
        }
        for rank, candidate in enumerate(candidates, 1)
    ]


def final_tables(run_id: str = RUN, n: int = 4) -> dict[str, list[Row]]:
    """Return the re-estimation of one candidate."""
    rows = evaluation_rows(run_id, None, ["0000-0"], n, role="holdout")
    return {"evaluations": rows, "attempts": attempt_rows(rows)}


def evaluation_rows(
    run_id: str, generation: int | None, candidates: list[str], n: int, role: str = "search"
) -> list[Row]:
    number = "final" if generation is None else f"{generation:04d}"
    return [
        {
            "run_id": run_id,
            "generation": generation,
            "eval_id": f"{number}-{i:04d}",
            "candidate_id": candidates[i % len(candidates)],
            "case_id": f"case-{i // len(candidates)}",
            "replicate": 0,
            "role": role,
            "attempt": 1,
            "status": "ok",
            "reward": (i % len(candidates)) / 2,
            "metrics": {"latency_ms": float(i), "quality": 0.5},
            "latency_ms": float(i),
            "cost_usd": 0.25,
            "started_at": T0 + i,
            "ended_at": T0 + i + 1,
            "call_key": f"key-{number}-{i}",
            "cached": False,
            "payload_sha256": f"sha-{number}-{i}",
        }
        for i in range(n)
    ]


def attempt_rows(evaluations: list[Row]) -> list[Row]:
    return [
        {
            "run_id": row["run_id"],
            "generation": row["generation"],
            "eval_id": row["eval_id"],
            "call_key": row["call_key"],
            "attempt": 1,
            "purpose": "evaluation",
            "provider": "function",
            "state": "done",
            "cost_usd": 0.25,
            "maybe_usd": 0.0,
            "started_at": row["started_at"],
            "ended_at": row["ended_at"],
        }
        for row in evaluations
    ]
