"""Two books of the same calls: the server's own log, and the journal's ledger."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from convergence_core.records import canonical_json, sha256_hex
from tasks.store.journal.sqlite_journal import open_journal
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.paid_runs import PRICES, STORE

Rows = Sequence[Mapping[str, Any]]

CHAT_PATH = "/v1/chat/completions"


def ledger(folder: Path) -> list[dict[str, Any]]:
    """Return all attempts of a folder's latest run, as its journal has them now."""
    runs = ParquetStore(folder / STORE).runs()
    if not runs:
        return []
    journal = open_journal(folder / STORE)
    try:
        rows = journal.attempts(runs[0].run_id, generation=None, all_generations=True)
    finally:
        journal.close()
    return [dict(row) for row in rows]


def attempt_of(row: Mapping[str, Any]) -> tuple[str, int]:
    """Return what names an attempt."""
    return row["call_key"], row["attempt"]


def made(rows: Rows) -> set[tuple[str, int]]:
    """Return the attempts that were begun; a hit of the cache is none."""
    return {attempt_of(row) for row in rows if row["state"] != "cached"}


def under_way(rows: Rows) -> set[tuple[str, int]]:
    """Return the attempts whose end is not known yet."""
    return {attempt_of(row) for row in rows if row["state"] == "started"}


def lost(rows: Rows) -> set[tuple[str, int]]:
    """Return the attempts that were given up for lost."""
    return {attempt_of(row) for row in rows if row["error_type"] == "lost"}


def done(rows: Rows) -> set[str]:
    """Return the calls whose answer is durable."""
    return {row["call_key"] for row in rows if row["state"] == "done"}


def requests_by_key(folder: Path) -> dict[str, str]:
    """Return the server's hash of each call's request, read from what the store kept of it."""
    rows = ParquetStore(folder / STORE).rows(
        "select distinct e.call_key, p.text from evaluations e "
        "join payloads p on p.run_id = e.run_id and p.payload_sha256 = e.request_sha256"
    )
    return {
        str(row["call_key"]): sha256_hex(
            canonical_json(["POST", CHAT_PATH, [], json.loads(str(row["text"]))["body"]])
        )
        for row in rows
    }


def usage(rows: Rows) -> Counter[str]:
    """Return the sums of a ledger's tokens, by the names of the server's log."""
    names = {
        "tokens_in": "prompt_tokens",
        "tokens_out": "completion_tokens",
        "cached_tokens": "cached_tokens",
        "reasoning_tokens": "reasoning_tokens",
    }
    sums: Counter[str] = Counter()
    for row in rows:
        sums.update({name: row[column] or 0 for column, name in names.items()})
    return sums


def logged_usage(log: Rows) -> Counter[str]:
    """Return the sums of a log's tokens."""
    sums: Counter[str] = Counter()
    for row in log:
        sums.update({name: n for name, n in row.items() if name.endswith("_tokens")})
    return sums


def cost(rows: Rows) -> float:
    """Return what a ledger says was paid."""
    return sum(row["cost_usd"] or 0.0 for row in rows)


def logged_cost(
    log: Iterable[Mapping[str, Any]], prices: Mapping[str, Mapping[str, float]] = PRICES
) -> float:
    """Return what the server's answers cost, computed by hand from its own log."""
    total = Fraction(0)
    for row in log:
        if row["status"] != 200:
            continue
        price = {name: Fraction(str(usd)) for name, usd in prices[row["model"]].items()}
        full = row["prompt_tokens"] - row["cached_tokens"]
        tokens = (
            full * price["input"]
            + row["cached_tokens"] * price.get("cached_input", price["input"])
            + row["completion_tokens"] * price["output"]
        )
        total += tokens / 1_000_000 + price.get("request", Fraction(0))
    return float(total)


def findings(folder: Path) -> dict[str, list[dict[str, object]]]:
    """Return what a run found, without times, prices and attempt numbers."""
    queries = {
        "candidates": "select candidate_id, generation, origin, parent_ids, params_json "
        "from candidates order by all",
        "evaluations": "select generation, candidate_id, case_id, replicate, role, status, fault, "
        "error_type, reward, metrics['right'] as correct, cached, request_sha256, payload_sha256 "
        "from evaluations order by all",
        "generations": "select generation, status, n_candidates, n_evaluations, raw_best_reward, "
        "raw_mean_reward, rng_state_json, sampler_state_json from generations order by all",
        "runs": "select name, status, seed, n_generations, reason from runs",
    }
    store = ParquetStore(folder / STORE)
    return {name: store.rows(sql) for name, sql in queries.items()}


def winner(folder: Path) -> object:
    """Return the configuration that a run handed over."""
    file = next((folder / "results").glob("*/best_config.json"))
    return json.loads(file.read_text(encoding="utf-8"))["config"]


def rewards(folder: Path, run_id: str | None = None) -> dict[tuple[object, ...], object]:
    """Return the reward of each cell, ``None`` where it has none, however often it was asked."""
    rows = ParquetStore(folder / STORE).rows(
        "select candidate_id, case_id, replicate, role, max(reward) as reward from evaluations "
        "where run_id = $run or $run is null group by all order by all",
        {"run": run_id},
    )
    return {
        (row["candidate_id"], row["case_id"], row["replicate"], row["role"]): row["reward"]
        for row in rows
    }
