"""Ledger of paid calls: columns, statements, sums and stored outcomes.

A cache hit has cost 0 and 0 tokens, and its row names the run that paid, so sums over the ledger
count no answer twice. ``maybe_usd`` holds the worst case of an attempt whose end is unknown. If
the worst case is unknown too, the ledger holds NULL and sums skip it: a sum of the rest still
bounds the rest.

Each row carries a digest of its values and its outcome, so that a changed bit is detected before
the row is used.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from convergence_core.errors import StoreDamagedError
from convergence_core.ports import CallIntent, CallTotals, Settlement, StoredAnswer
from convergence_core.records import Json, Usage, canonical_json, fields_of

ANSWERS = "answers/"
"""Prefix of the run id of a service's answers; the system and the UTC day follow:
``bot/2026-01-31``.
"""

_USAGE = {
    "tokens_in": "prompt_tokens",
    "tokens_out": "completion_tokens",
    "cached_tokens": "cached_tokens",
    "cache_write_tokens": "cache_write_tokens",
    "reasoning_tokens": "reasoning_tokens",
}
"""Column → field of ``Usage``."""
USAGE_COLUMNS = tuple(_USAGE)

ASKED_COLUMNS = ("call_key", "run_id", "eval_id", "purpose", "generation", "provider", "model")

BEGUN_COLUMNS = (*ASKED_COLUMNS, "attempt", "max_usd", "max_tokens")
"""Columns that keep their values from an attempt's start to its end."""

LOST_COLUMNS = ("call_key", "attempt", "purpose", "provider", "model", "started_us", "max_usd")
"""Fields of a ``LostCall``."""

_WORST = "CASE WHEN state = 'started' OR error_type = 'lost' THEN max_{0} ELSE maybe_{0} END"
_SAME = (
    *("call_key", "attempt", "purpose", "provider", "model", "state", "error_type"),
    *(*USAGE_COLUMNS, "cost_usd", "price_version", "max_usd"),
)
_EXPRESSIONS = {
    "run_id": "run_id",
    "generation": "generation",
    "eval_id": "nullif(eval_id, '')",
    **{column: column for column in _SAME},
    "maybe_usd": _WORST.format("usd"),
    "maybe_tokens": _WORST.format("tokens"),
    "payer_run_id": "payer_run_id",
    "started_at": "started_us",
    "ended_at": "ended_us",
}
LEDGER = tuple(_EXPRESSIONS)
"""Columns of ``attempts`` that a journal fills, in the order of ``LEDGER_SQL``."""

LEDGER_ORDER = "ORDER BY generation NULLS FIRST, call_key, attempt, eval_id, purpose"

UNPRICED = (
    "cost_usd IS NULL AND (state = 'done' OR "
    "(state = 'failed' AND coalesce(tokens_in, tokens_out) IS NOT NULL))"
)
"""Condition of an attempt that was answered, as far as known, at an unknown price."""
KNOWN_USD = (
    f"CASE WHEN sum(cost_usd) > 0 OR count(*) FILTER (WHERE {UNPRICED}) = 0 THEN sum(cost_usd) END"
)
"""Sum of known prices. NULL if the only known ones are those of free failures."""
WHOLE_USD = f"CASE WHEN count(*) FILTER (WHERE {UNPRICED}) = 0 THEN coalesce(sum(cost_usd), 0) END"
"""Sum of all prices; NULL if one is unknown."""
BY_ROLE = (
    "SELECT *, max(cost_usd) OVER (PARTITION BY run_id, purpose, provider, model) AS most_usd "
    "FROM attempts"
)
"""Attempts with the highest price of their role; add the condition on the runs here, not outside."""
N_UNPRICED = f"count(*) FILTER (WHERE {UNPRICED} AND (provider <> 'function' OR most_usd > 0))"
"""Calls of unknown price, of ``BY_ROLE``; a local function that reports no cost is free."""

_REPORTED_TOKENS = "(coalesce(tokens_in, 0) + coalesce(tokens_out, 0))"
_UNTOLD = (
    "CASE WHEN (tokens_in IS NULL OR tokens_out IS NULL) "
    f"AND max_tokens > {_REPORTED_TOKENS} THEN max_tokens - {_REPORTED_TOKENS} ELSE 0 END"
)
"""Tokens that an attempt may have used beyond the reported ones."""


LEDGER_SQL = f"SELECT {', '.join(_EXPRESSIONS.values())} FROM attempts"  # noqa: S608 - constants

_TOTALS = {
    "n_attempts": "count(*)",
    "n_done": "count(*) FILTER (WHERE state = 'done')",
    "n_failed": "count(*) FILTER (WHERE state = 'failed')",
    "n_in_flight": "count(*) FILTER (WHERE state = 'started')",
    "cost_usd": KNOWN_USD,
    "n_unpriced": f"count(*) FILTER (WHERE {UNPRICED})",
    "maybe_usd": "coalesce(sum(CASE WHEN state = 'started' THEN max_usd ELSE maybe_usd END), 0.0)",
    "tokens": f"CAST(coalesce(sum({_REPORTED_TOKENS}), 0) AS BIGINT)",
    "maybe_tokens": "CAST(coalesce(sum(CASE WHEN state = 'started' THEN max_tokens ELSE maybe_tokens "
    "END), 0) AS BIGINT)",
    "unpriced_usd": f"coalesce(sum(max_usd) FILTER (WHERE {UNPRICED}), 0.0)",
    "unpriced_tokens": f"CAST(coalesce(sum({_UNTOLD}) FILTER (WHERE {UNPRICED}), 0) AS BIGINT)",
}
"""Field of ``CallTotals`` → its sum over the attempts of a run."""
TOTALS_SQL = (
    f"SELECT {', '.join(_TOTALS.values())} FROM attempts "  # noqa: S608 - constants
    "WHERE run_id = ? AND state <> 'cached'"
)
"""Query of the row that ``account`` reads."""

LOSE = (
    "UPDATE attempts SET state = 'failed', error_type = 'lost', "
    "maybe_usd = coalesce(max_usd, 0), maybe_tokens = coalesce(max_tokens, 0) "
    "WHERE state = 'started'"
)
"""Statement for attempts without a recorded end: the process died or its lease expired."""


def insert_sql(state: str, columns: Sequence[str], constants: Mapping[str, str]) -> str:
    """Return the INSERT of an attempt in a state: named values, then constant expressions."""
    names = ", ".join((*columns, "state", *constants))
    marks = ", ".join((*(f":{column}" for column in columns), f"'{state}'", *constants.values()))
    return f"INSERT INTO attempts({names}) VALUES ({marks})"  # noqa: S608 - constants


NEW_ATTEMPT = (*BEGUN_COLUMNS, "started_us", "digest")
"""Columns of a new attempt; see ``begun_values``."""

CACHE_HIT = (
    insert_sql(
        "cached",
        (*ASKED_COLUMNS, "attempt", "payer_run_id", "started_us", "ended_us", "digest"),
        dict.fromkeys(("cost_usd", *USAGE_COLUMNS), "0"),
    )
    + " ON CONFLICT DO NOTHING"
)
"""INSERT of a cache hit, with zero usage so that sums stay correct. See ``hit_values``."""

_SETTLED = (
    *("state", "error_type", "error", *USAGE_COLUMNS, "cost_usd", "price_version", "maybe_usd"),
    *("maybe_tokens", "started_us", "ended_us", "model"),
)
SETTLE = "UPDATE attempts SET " + ", ".join(  # noqa: S608 - constants
    f"{column} = :{column}" for column in (*_SETTLED, "outcome", "digest")
)
"""UPDATE of an attempt at its end, without WHERE; see ``settled_values``."""

_USD = ("cost_usd", "max_usd", "maybe_usd")
_DIGESTED = (
    *(*ASKED_COLUMNS, "attempt", "max_tokens", "state", "error_type", "error", *USAGE_COLUMNS),
    *("price_version", "maybe_tokens", "payer_run_id", "started_us", "ended_us", *_USD),
)
"""Columns in a row's digest, in addition to its outcome."""
ROW_COLUMNS = (*_DIGESTED, "digest")
"""Columns that ``stored_answer`` and ``is_whole`` read."""
_VALUES = itemgetter(*_DIGESTED)
_DEFAULTS = dict.fromkeys(_DIGESTED) | {"maybe_usd": 0.0, "maybe_tokens": 0}
_STARTED = {**_DEFAULTS, "state": "started"}
_CACHED = {**_DEFAULTS, "state": "cached", "cost_usd": 0.0} | dict.fromkeys(USAGE_COLUMNS, 0)


def begun_values(intent: CallIntent, attempt: int, now: int) -> dict[str, Any]:
    """Return the values of ``NEW_ATTEMPT``, by column."""
    values = {
        **asked(intent), "attempt": attempt, "max_usd": intent.max_usd,
        "max_tokens": intent.max_tokens, "started_us": now,
    }  # fmt: skip
    return {**values, "digest": digest_of(_STARTED | values)}


def hit_values(intent: CallIntent, answer: StoredAnswer, now: int) -> dict[str, Any]:
    """Return the values of ``CACHE_HIT``, by column."""
    values = {
        **asked(intent), "attempt": answer.attempt, "payer_run_id": answer.run_id,
        "started_us": now, "ended_us": now,
    }  # fmt: skip
    return {**values, "digest": digest_of(_CACHED | values)}


def settled_values(settlement: Settlement, begun: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of ``SETTLE``, by column.

    Args:
        settlement: end of the attempt.
        begun: the stored row of ``BEGUN_COLUMNS``.
    """
    text = outcome_text(settlement.outcome)
    is_done = settlement.state == "done"
    values = {
        **fields_of(settlement, "state", "cost_usd", "maybe_usd", "maybe_tokens"),
        **fields_of(settlement, "started_us", "ended_us"),
        "error_type": None if is_done else error_type_of(settlement.outcome),
        "error": None if is_done else text,
        **{column: getattr(settlement.usage, name) for column, name in _USAGE.items()},
        "price_version": storable(settlement.price_version),
        "model": storable(settlement.model) if settlement.model is not None else begun["model"],
    }
    outcome = text if is_done else None
    digest = digest_of({**_DEFAULTS, **begun, **values}, outcome or "")
    return {**values, "outcome": outcome, "digest": digest}


def digest_of(row: Mapping[str, Any], outcome: str = "") -> int:
    """Return the digest of an attempt's row and its answer."""
    *values, cost, most, maybe = _VALUES(row)
    # SQLite stores neither NaN nor -0.0.
    usd = (None if v is None or v != v else v + 0.0 for v in (cost, most, maybe))  # noqa: PLR0124
    text = "\x1f".join(map(str, (*values, *usd, outcome)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], signed=True)


def is_whole(row: Mapping[str, Any], outcome: str | None) -> bool:
    """Return whether a row of ``ROW_COLUMNS`` and its answer are unchanged since their writing."""
    if row["state"] == "failed" and row["error_type"] == "lost" and row["error"] is None:
        worst = row["max_usd"] or 0, row["max_tokens"] or 0
        if worst != (row["maybe_usd"], row["maybe_tokens"]):
            return False
        row = {**row, "state": "started", "error_type": None, "maybe_usd": 0.0, "maybe_tokens": 0}
    if (outcome is not None) != (row["state"] == "done"):
        return False
    try:
        return bool(digest_of(row, outcome or "") == row["digest"])
    except TypeError:  # a string in place of a number
        return False


def name_of(row: Mapping[str, Any]) -> str:
    """Return a readable name of an attempt's row."""
    evaluation = row["eval_id"] or "none"
    return (
        f"run {row['run_id']}, evaluation {evaluation}, attempt {row['attempt']} "
        f"of call {row['call_key']}"
    )


def damaged_error(names: Sequence[str]) -> StoreDamagedError:
    """Return the error that names damaged rows."""
    return StoreDamagedError(
        f"{len(names)} row(s) of the journal were changed after they were written: {'; '.join(names[:3])}. "
        "Restore the journal from a backup, or move it away: unfinished runs then pay again for what "
        "was not yet published."
    )


def account(row: Sequence[Any], active_us: int) -> CallTotals:
    """Return the totals of a row of ``TOTALS_SQL``."""
    totals = dict(zip(_TOTALS, row, strict=True))
    if totals["cost_usd"] is None and not totals["n_unpriced"]:
        totals["cost_usd"] = 0.0
    return CallTotals(**totals, active_s=active_us / 1e6)


def row_of(values: Sequence[Any]) -> dict[str, Any]:
    """Return the values of ``ROW_COLUMNS`` by their columns."""
    return dict(zip(ROW_COLUMNS, values, strict=True))


def stored_answer(row: Mapping[str, Any], outcome: str | None) -> StoredAnswer:
    """Return the answer of a row of ``ROW_COLUMNS``.

    Raises:
        StoreDamagedError: the row or the answer has changed since its writing.
    """
    if outcome is None or not is_whole(row, outcome):
        raise damaged_error([name_of(row)])
    return StoredAnswer(
        outcome=json.loads(outcome), started_us=row["started_us"], ended_us=row["ended_us"],
        attempt=row["attempt"], run_id=row["run_id"], eval_id=row["eval_id"] or None,
        cost_usd=row["cost_usd"], usage=Usage(**{name: row[c] for c, name in _USAGE.items()}),
    )  # fmt: skip


def asked(intent: CallIntent) -> dict[str, str | int | None]:
    """Return the values of ``ASKED_COLUMNS``, by column."""
    return {
        **fields_of(intent, "call_key", "run_id", "purpose", "generation", "provider"),
        "eval_id": intent.eval_id or "",
        "model": storable(intent.model),
    }


def error_type_of(outcome: Json) -> str | None:
    """Return the error type in the outcome of a failed attempt; ``None`` if it has none."""
    error_type = outcome.get("error_type") if isinstance(outcome, dict) else None
    return storable(error_type) if isinstance(error_type, str) else None


def outcome_text(outcome: Json) -> str:
    """Return an outcome as JSON that UTF-8 can encode and ``json.loads`` restores."""
    text = canonical_json(outcome)
    if not text.isascii() and storable(text) != text:
        # A lone surrogate, which JSON can escape and UTF-8 cannot encode.
        text = json.dumps(outcome, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text


def storable(text: str | None) -> str | None:
    """Replace the characters that UTF-8 or a database cannot store."""
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return text.replace("\0", "�").encode("utf-8", "replace").decode("utf-8")
