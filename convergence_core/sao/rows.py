"""Rows of rounds of preferences, and back.

Rows are a function of the round, so a resumed run writes the same bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from convergence_core.ports import Row, payloads_of
from convergence_core.records import canonical_json, fields_of, sha256_hex
from convergence_core.sao.preferences import Answer, Comparison, JudgedPair, Judgement
from convergence_core.sao.round_result import SaoRound

PREFERENCES_SQL: Final = """
    WITH texts AS (
      SELECT run_id, payload_sha256, min(text) AS text FROM payloads
      WHERE kind IN ('prompt', 'response') GROUP BY ALL)
    SELECT p.*, x.text AS prompt, a.text AS first_text, b.text AS second_text
    FROM preferences p
    JOIN runs r USING (run_id)
    LEFT JOIN texts x ON x.run_id = p.run_id AND x.payload_sha256 = p.prompt_sha256
    LEFT JOIN texts a ON a.run_id = p.run_id AND a.payload_sha256 = p.first_sha256
    LEFT JOIN texts b ON b.run_id = p.run_id AND b.payload_sha256 = p.second_sha256
    WHERE (p.run_id = $run OR $run IS NULL) AND (r.name = $system OR $system IS NULL)
    ORDER BY r.started_at, p.run_id, p.generation, p.position"""
"""Judged pairs with their texts, in the order in which they were judged."""


def round_tables(run_id: str, generation: int, finished: SaoRound) -> dict[str, list[Row]]:
    """Return the rows of a round by table, the same for the same round.

    Args:
        run_id: Id of the run.
        generation: Generation after the round.
        finished: Finished round.
    """
    key = {"run_id": run_id, "generation": generation}
    return {
        "payloads": text_rows(run_id, finished.outcome.pairs),
        "preferences": preference_rows(run_id, generation, finished.outcome.pairs),
        "preference_rounds": [{**key, **_round(finished)}],
        "preference_audits": [
            {
                **key,
                **fields_of(item, "item_id", "case_id", "first_is_right"),
                "first_author": item.comparison.first.author,
                "second_author": item.comparison.second.author,
                **fields_of(judgement, "p12", "p21"),
                "p_right": judgement.q if item.first_is_right else 1.0 - judgement.q,
            }
            for item, judgement in finished.outcome.audits
        ],
    }


def preference_rows(run_id: str, generation: int, pairs: Sequence[JudgedPair]) -> list[Row]:
    """Return a row per judged pair, including dropped ones."""
    return [
        {
            "run_id": run_id,
            "generation": generation,
            **fields_of(c, "pair_id", "kind", "persona"),
            **fields_of(pair, "position", "split", "dropped_by"),
            **fields_of(j, "p12", "p21", "log_odds"),
            "round": pair.round_number,
            "prompt_sha256": sha256_hex(c.prompt),
            "first_sha256": sha256_hex(c.first.text),
            "second_sha256": sha256_hex(c.second.text),
            "first_author": c.first.author,
            "second_author": c.second.author,
        }
        for pair in pairs
        for c, j in [(pair.comparison, pair.judgement)]
    ]


def text_rows(run_id: str, pairs: Iterable[JudgedPair]) -> list[Row]:
    """Return each distinct prompt and answer once, for ``payloads``."""
    kind_of: dict[str, str] = {}
    for pair in pairs:
        c = pair.comparison
        kind_of |= {c.prompt: "prompt", c.first.text: "response", c.second.text: "response"}
    return payloads_of(run_id, kind_of)


def _round(finished: SaoRound) -> Row:
    """Return the columns of ``preference_rounds``, except its key."""
    plan, outcome, state = finished.plan, finished.outcome, finished.state
    audit, trust = outcome.audit, state.trust
    return {
        "round": plan.round_number,
        "n_prompts": len(plan.personas),
        "n_pairs": outcome.n_pairs,
        "n_judged": len(outcome.pairs),
        "n_kept": sum(pair.is_kept for pair in outcome.pairs),
        "dropped": _known(outcome.dropped),
        "judge": _known({
            "agreement": outcome.agreement,
            "different_items": trust.n_different, "pooled_items": trust.n_items,
            "pooled_right": trust.n_right, "lower_bound": trust.lower_bound,
        }),
        **fields_of(audit, "n_items", "accuracy"),
        "trust": trust.value,
        **fields_of(finished, "n_variants", "note"),
        "errors_json": canonical_json(dict(outcome.errors)),
    }  # fmt: skip


def _known(numbers: Mapping[Any, float | None]) -> dict[str, float]:
    """Return the numbers that are known."""
    return {str(name): float(n) for name, n in numbers.items() if n is not None}


def pairs_of(rows: Iterable[Mapping[str, Any]]) -> list[JudgedPair]:
    """Return the judged pairs in rows of ``PREFERENCES_SQL``."""
    return [
        JudgedPair(
            comparison=Comparison(
                prompt=str(row["prompt"]),
                first=Answer(text=str(row["first_text"]), author=str(row["first_author"])),
                second=Answer(text=str(row["second_text"]), author=str(row["second_author"])),
                kind=row["kind"],
                persona=row["persona"],
            ),
            judgement=Judgement(p12=float(row["p12"]), p21=float(row["p21"])),
            dropped_by=row["dropped_by"],
            round_number=int(row["round"]),
            position=int(row["position"]),
        )
        for row in rows
    ]
