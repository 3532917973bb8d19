"""Rounds of preferences as rows of tables, and back: pure, so that a resumed run writes the same."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from convergence_core.judges.coverage.measures import Coverage
from convergence_core.judges.trust.audit import Audit
from convergence_core.ports import Row
from convergence_core.records import canonical_json, sha256_hex
from convergence_core.sao.executed_items import AuditItem
from convergence_core.sao.filters import Filter
from convergence_core.sao.pooled import Pooled
from convergence_core.sao.preferences import Answer, Comparison, Judgement
from convergence_core.sao.state import JudgedPair, SaoState

STOPPED: Final = "stopped"
"""Measure of a round: 1 if an alarm of coverage stopped the rows after it, else 0."""

PREFERENCES_SQL: Final = """
    WITH texts AS (
      SELECT run_id, payload_sha256, min(text) AS text FROM payloads
      WHERE kind IN ('prompt', 'response') GROUP BY ALL)
    SELECT p.*, x.text AS prompt, a.text AS first_text, b.text AS second_text,
      coalesce(q.coverage['stopped'], 0) > 0 AS is_collapsed
    FROM preferences p
    JOIN runs r USING (run_id)
    LEFT JOIN texts x ON x.run_id = p.run_id AND x.payload_sha256 = p.prompt_sha256
    LEFT JOIN texts a ON a.run_id = p.run_id AND a.payload_sha256 = p.first_sha256
    LEFT JOIN texts b ON b.run_id = p.run_id AND b.payload_sha256 = p.second_sha256
    LEFT JOIN preference_rounds q ON q.run_id = p.run_id AND q.generation = p.generation
    WHERE (p.run_id = $run OR $run IS NULL) AND (r.name = $system OR $system IS NULL)
    ORDER BY r.started_at, p.run_id, p.generation, p.position"""
"""Judged pairs with their texts, and whether an alarm (``STOPPED``) followed them, in the order in which they were judged."""

PROBES_SQL: Final = """
    WITH texts AS (
      SELECT run_id, payload_sha256, min(text) AS text FROM payloads
      WHERE kind = 'prompt' GROUP BY ALL)
    SELECT p.*, x.text AS prompt
    FROM preference_probes p
    JOIN runs r USING (run_id)
    JOIN texts x ON x.run_id = p.run_id AND x.payload_sha256 = p.prompt_sha256
    WHERE r.name = $system
    ORDER BY r.started_at, p.run_id, p.generation, p.position"""
"""Prompts that were written on probation, in their order."""


def preference_rows(run_id: str, generation: int, pairs: Sequence[JudgedPair]) -> list[Row]:
    """Return a row per judged pair, those of no use included."""
    return [
        {
            "run_id": run_id,
            "generation": generation,
            "pair_id": pair.comparison.pair_id,
            "round": pair.round_number,
            "position": pair.position,
            "kind": pair.comparison.kind,
            "split": pair.split,
            "prompt_sha256": sha256_hex(pair.comparison.prompt),
            "first_sha256": sha256_hex(pair.comparison.first.text),
            "second_sha256": sha256_hex(pair.comparison.second.text),
            "first_author": pair.comparison.first.author,
            "second_author": pair.comparison.second.author,
            "persona": pair.comparison.persona,
            "p12": pair.judgement.p12,
            "p21": pair.judgement.p21,
            "log_odds": pair.judgement.log_odds,
            "estimator": pair.judgement.estimator,
            "dropped_by": pair.dropped_by,
        }
        for pair in pairs
    ]


def text_rows(run_id: str, pairs: Iterable[JudgedPair]) -> list[Row]:
    """Return each distinct prompt and answer once, for ``payloads``."""
    texts: dict[str, tuple[str, str]] = {}
    for pair in pairs:
        for kind, text in (
            ("prompt", pair.comparison.prompt),
            ("response", pair.comparison.first.text),
            ("response", pair.comparison.second.text),
        ):
            texts[sha256_hex(text)] = (kind, text)
    return [
        {"run_id": run_id, "payload_sha256": key, "kind": kind, "text": text}
        for key, (kind, text) in sorted(texts.items())
    ]


def probe_rows(
    run_id: str, generation: int, round_number: int, probes: Sequence[tuple[int, str]]
) -> dict[str, list[Row]]:
    """Return the rows of prompts that were written on probation, with their texts, by table.

    Args:
        run_id: of the run.
        generation: before which they were written.
        round_number: from 0.
        probes: (index of who asks, prompt).
    """
    texts = {sha256_hex(prompt): prompt for _, prompt in probes}
    return {
        "payloads": [
            {"run_id": run_id, "payload_sha256": key, "kind": "prompt", "text": text}
            for key, text in sorted(texts.items())
        ],
        "preference_probes": [
            {
                "run_id": run_id,
                "generation": generation,
                "position": position,
                "round": round_number,
                "persona": persona,
                "prompt_sha256": sha256_hex(prompt),
            }
            for position, (persona, prompt) in enumerate(probes)
        ],
    }


def audit_rows(
    run_id: str, generation: int, judged: Sequence[tuple[AuditItem, Judgement]]
) -> list[Row]:
    """Return a row per audited item."""
    return [
        {
            "run_id": run_id,
            "generation": generation,
            "item_id": item.item_id,
            "case_id": item.case_id,
            "first_author": item.comparison.first.author,
            "second_author": item.comparison.second.author,
            "first_is_right": item.first_is_right,
            "p12": judgement.p12,
            "p21": judgement.p21,
            "p_right": judgement.q if item.first_is_right else 1.0 - judgement.q,
            "estimator": judgement.estimator,
        }
        for item, judgement in judged
    ]


def round_row(
    run_id: str,
    generation: int,
    *,
    round_number: int,
    n_prompts: int,
    n_pairs: int,
    n_judged: int,
    n_kept: int,
    counters: Mapping[Filter, int],
    errors: Mapping[str, int],
    pooled: Pooled,
    coverage: Coverage | None,
    configurations: tuple[float, float],
    found: Audit,
    state: SaoState,
    estimator: str | None,
    note: str | None,
    n_variants: int,
    agreement_with_frozen: float | None,
) -> Row:
    """Return the row of a round; see ``PREFERENCE_ROUNDS``."""
    measures: dict[str, float] = {
        "evaluated": configurations[0],
        "proposed": configurations[1],
        "drift_up": state.drift.up,
        "drift_down": state.drift.down,
        STOPPED: float(state.alarms.is_stopped),
    }
    if coverage is not None:
        measures |= {
            "n_texts": float(coverage.n_texts),
            "vendi": coverage.vendi,
            "distinct_2": coverage.distinct_2,
            "zlib_ratio": coverage.zlib_ratio,
            "duplicates": coverage.duplicate_share,
        }
        if coverage.held_out is not None:
            measures["held_out"] = coverage.held_out
    judge = {
        "agreement": pooled.agreement,
        "position": pooled.position,
        "length": pooled.length,
        "length_correlation": pooled.length_correlation,
        "log_score": found.log_score,
        "calibration_error": found.calibration_error,
        "correlation": found.correlation,
        "correlation_low": None if found.interval is None else found.interval[0],
        "correlation_high": None if found.interval is None else found.interval[1],
        "frozen": agreement_with_frozen,
        "audit_length": found.length,
        "audit_length_se": found.length_se,
        "different_items": float(state.trust.n_different),
        "pooled_items": state.trust.n_items,
        "pooled_right": state.trust.n_right,
        "lower_bound": state.trust.lower_bound,
        "judge_slope": state.exploitation.slopes[0],
        "grounded_slope": state.exploitation.slopes[1],
    }
    return {
        "run_id": run_id,
        "generation": generation,
        "round": round_number,
        "n_prompts": n_prompts,
        "n_pairs": n_pairs,
        "n_judged": n_judged,
        "n_kept": n_kept,
        "dropped": {name: float(n) for name, n in counters.items()},
        "judge": {name: value for name, value in judge.items() if value is not None},
        "coverage": measures,
        "n_items": found.n_items,
        "accuracy": found.accuracy,
        "trust": state.trust.value,
        "n_variants": n_variants,
        "estimator": estimator,
        "is_frozen": state.exploitation.is_frozen,
        "note": note,
        "errors_json": canonical_json(dict(errors)),
    }


def pairs_of(rows: Iterable[Mapping[str, Any]]) -> list[JudgedPair]:
    """Return the judged pairs that rows of ``PREFERENCES_SQL`` hold."""
    return [
        JudgedPair(
            comparison=Comparison(
                prompt=str(row["prompt"]),
                first=Answer(text=str(row["first_text"]), author=str(row["first_author"])),
                second=Answer(text=str(row["second_text"]), author=str(row["second_author"])),
                kind=row["kind"],
                persona=row["persona"],
            ),
            judgement=Judgement(
                p12=float(row["p12"]), p21=float(row["p21"]), estimator=str(row["estimator"])
            ),
            dropped_by=row["dropped_by"],
            round_number=int(row["round"]),
            position=int(row["position"]),
            is_collapsed=bool(row["is_collapsed"]),
        )
        for row in rows
    ]
