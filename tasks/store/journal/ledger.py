"""What every journal shares: the ledger's columns and sums, and texts as they are stored.

A cache hit used nothing: its row bears cost 0 and 0 tokens, and names the run that paid. So sums
over the ledger are what providers were really asked for. The worst case of an attempt whose end
nobody saw stands in ``maybe_usd``; where it is not known that is NULL in the ledger, and nothing in
sums, since a sum of the rest is still a bound on the rest.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from convergence_core.ports import (
    CallIntent,
    CallTotals,
    LostCall,
    Settlement,
    StoredAnswer,
)
from convergence_core.records import Json, Usage, canonical_json

USAGE_COLUMNS = (
    "tokens_in",
    "tokens_out",
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
"""In the order of ``usage_values``."""

ANSWER_COLUMNS = (
    "run_id",
    "eval_id",
    "attempt",
    "started_us",
    "ended_us",
    "cost_usd",
    *USAGE_COLUMNS,
)
"""What ``stored_answer`` reads."""

ASKED_COLUMNS = ("call_key", "run_id", "eval_id", "purpose", "generation", "provider", "model")
"""In the order of ``asked``."""

LOST_COLUMNS = ("call_key", "attempt", "purpose", "provider", "model", "started_us", "max_usd")
"""What ``lost_calls`` reads."""

_EXPRESSIONS = {
    "run_id": "run_id",
    "generation": "generation",
    "eval_id": "nullif(eval_id, '')",
    "call_key": "call_key",
    "attempt": "attempt",
    "purpose": "purpose",
    "provider": "provider",
    "model": "model",
    "state": "state",
    "error_type": "error_type",
    **{column: column for column in USAGE_COLUMNS},
    "cost_usd": "cost_usd",
    "price_version": "price_version",
    "max_usd": "max_usd",
    "maybe_usd": "CASE WHEN state = 'started' OR error_type = 'lost' THEN max_usd "
    "ELSE maybe_usd END",
    "maybe_tokens": "CASE WHEN state = 'started' OR error_type = 'lost' THEN max_tokens "
    "ELSE maybe_tokens END",
    "payer_run_id": "payer_run_id",
    "started_at": "started_us",
    "ended_at": "ended_us",
}
LEDGER = tuple(_EXPRESSIONS)
"""Columns of ``attempts`` that a journal fills, in the order of ``ledger_sql``."""

LEDGER_ORDER = "ORDER BY generation NULLS FIRST, call_key, attempt, eval_id, purpose"

UNPRICED = (
    "cost_usd IS NULL AND (state = 'done' OR "
    "(state = 'failed' AND coalesce(tokens_in, tokens_out) IS NOT NULL))"
)
"""Answered, so far as anybody knows, at an unknown price."""

_TOLD = "(coalesce(tokens_in, 0) + coalesce(tokens_out, 0))"
_UNTOLD = (
    "CASE WHEN (tokens_in IS NULL OR tokens_out IS NULL) "
    f"AND max_tokens > {_TOLD} THEN max_tokens - {_TOLD} ELSE 0 END"
)
"""Tokens that an attempt may have used beyond those that it reported."""


def ledger_sql(table: str, mark: str) -> str:
    """Return the SELECT of one run's ledger, for SQLite and Postgres alike.

    Args:
        table: where the attempts lie.
        mark: placeholder of a parameter.
    """
    return f"SELECT {', '.join(_EXPRESSIONS.values())} FROM {table} WHERE run_id = {mark}"  # noqa: S608 - constants


def totals_sql(table: str, mark: str) -> str:
    """Return the SELECT whose row ``account`` reads, for SQLite and Postgres alike."""
    return (
        "SELECT count(*), count(*) FILTER (WHERE state = 'done'), "  # noqa: S608 - constants
        "count(*) FILTER (WHERE state = 'failed'), count(*) FILTER (WHERE state = 'started'), "
        f"sum(cost_usd), count(*) FILTER (WHERE {UNPRICED}), "
        "coalesce(sum(CASE WHEN state = 'started' THEN max_usd ELSE maybe_usd END), 0.0), "
        "CAST(coalesce(sum(coalesce(tokens_in, 0) + coalesce(tokens_out, 0)), 0) AS BIGINT), "
        "CAST(coalesce(sum(CASE WHEN state = 'started' THEN max_tokens ELSE maybe_tokens END), 0) "
        "AS BIGINT), "
        f"coalesce(sum(max_usd) FILTER (WHERE {UNPRICED}), 0.0), "
        f"CAST(coalesce(sum({_UNTOLD}) FILTER (WHERE {UNPRICED}), 0) AS BIGINT) "
        f"FROM {table} WHERE run_id = {mark} AND state <> 'cached'"
    )


def new_attempt_sql(table: str, mark: str, *others: str) -> str:
    """Return the INSERT of an attempt that is about to be made.

    Its parameters: ``asked``, the attempt's number, those of ``others``, ``max_usd``,
    ``max_tokens``, ``started_us``.
    """
    columns = (*ASKED_COLUMNS, "attempt", *others, "max_usd", "max_tokens", "started_us")
    marks = ", ".join([mark] * len(columns))
    return f"INSERT INTO {table}({', '.join(columns)}, state) VALUES ({marks}, 'started')"  # noqa: S608 - constants


def cache_hit_sql(table: str, mark: str) -> str:
    """Return the INSERT of an answer used again: nothing was used, so that sums stay true.

    Its parameters: ``asked``, the attempt's number, who paid, ``started_us``, ``ended_us``.
    """
    columns = (*ASKED_COLUMNS, "attempt", "payer_run_id", "started_us", "ended_us")
    nothing = ("cost_usd", *USAGE_COLUMNS)
    marks, zeros = ", ".join([mark] * len(columns)), ", ".join(["0"] * len(nothing))
    return (
        f"INSERT INTO {table}({', '.join(columns)}, state, {', '.join(nothing)}) "  # noqa: S608 - constants
        f"VALUES ({marks}, 'cached', {zeros}) ON CONFLICT DO NOTHING"
    )


def settle_sql(table: str, mark: str) -> str:
    """Return the UPDATE of an attempt that has ended, without WHERE; see ``settled_values``."""
    return (
        f"UPDATE {table} SET state = {mark}, error_type = {mark}, error = {mark}, "  # noqa: S608 - constants
        f"outcome = {mark}, {', '.join(f'{column} = {mark}' for column in USAGE_COLUMNS)}, "
        f"cost_usd = {mark}, price_version = {mark}, maybe_usd = {mark}, maybe_tokens = {mark}, "
        f"model = coalesce({mark}, model), started_us = {mark}, ended_us = {mark}"
    )


def settled_values(settlement: Settlement, *, keeps_answer: bool) -> tuple[Any, ...]:
    """Return the parameters of ``settle_sql``.

    Args:
        settlement: how the attempt ended.
        keeps_answer: whether an answer is kept with the attempt.
    """
    outcome = outcome_text(settlement.outcome)
    done = settlement.state == "done"
    return (
        settlement.state,
        None if done else error_type_of(settlement.outcome),
        None if done else outcome,
        outcome if done and keeps_answer else None,
        *usage_values(settlement.usage),
        settlement.cost_usd,
        storable(settlement.price_version),
        settlement.maybe_usd,
        settlement.maybe_tokens,
        storable(settlement.model),
        settlement.started_us,
        settlement.ended_us,
    )


def account(row: Sequence[Any], active_us: int) -> CallTotals:
    """Return the account that a row of ``totals_sql`` holds."""
    n_attempts, n_done, n_failed, n_in_flight, cost_usd, n_unpriced, maybe_usd, *rest = row
    tokens, maybe_tokens, unpriced_usd, unpriced_tokens = rest
    if cost_usd is None and not n_unpriced:
        cost_usd = 0.0
    return CallTotals(
        n_attempts=n_attempts,
        n_done=n_done,
        n_failed=n_failed,
        n_in_flight=n_in_flight,
        cost_usd=cost_usd,
        maybe_usd=maybe_usd,
        n_unpriced=n_unpriced,
        unpriced_usd=unpriced_usd,
        tokens=tokens,
        maybe_tokens=maybe_tokens,
        unpriced_tokens=unpriced_tokens,
        active_s=active_us / 1e6,
    )


def usage_values(usage: Usage) -> tuple[int | None, ...]:
    """Return the counts of tokens in the order of ``USAGE_COLUMNS``."""
    return (
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
    )


def stored_answer(row: Sequence[Any], outcome: str) -> StoredAnswer:
    """Return the answer that a row of ``ANSWER_COLUMNS`` paid for."""
    run_id, eval_id, attempt, started_us, ended_us, cost_usd, *tokens = row
    prompt, completion, cached, cache_write, reasoning = tokens
    return StoredAnswer(
        outcome=json.loads(outcome),
        started_us=started_us,
        ended_us=ended_us,
        attempt=attempt,
        run_id=run_id,
        eval_id=eval_id or None,
        cost_usd=cost_usd,
        usage=Usage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=cached,
            cache_write_tokens=cache_write,
            reasoning_tokens=reasoning,
        ),
    )


def lost_calls(rows: Iterable[Sequence[Any]]) -> list[LostCall]:
    """Return the attempts that rows of ``LOST_COLUMNS`` tell of."""
    return [LostCall(**dict(zip(LOST_COLUMNS, row, strict=True))) for row in rows]


def asked(intent: CallIntent) -> tuple[str | int | None, ...]:
    """Return what an attempt keeps of its intent, in the order of ``ASKED_COLUMNS``."""
    return (
        intent.call_key,
        intent.run_id,
        intent.eval_id or "",
        intent.purpose,
        intent.generation,
        intent.provider,
        storable(intent.model),
    )


def is_fresh(ended_us: int, intent: CallIntent) -> bool:
    """Return whether an answer is young enough for an intent."""
    return intent.fresh_since_us is None or ended_us >= intent.fresh_since_us


def error_type_of(outcome: Json) -> str | None:
    """Return the error type that the outcome of a failed attempt names."""
    found = outcome.get("error_type") if isinstance(outcome, dict) else None
    return storable(found) if isinstance(found, str) else None


def outcome_text(outcome: Json) -> str:
    """Return an outcome as a text that UTF-8 holds and ``json.loads`` gives back."""
    text = canonical_json(outcome)
    if not text.isascii() and storable(text) != text:
        # A lone surrogate: JSON can carry it, UTF-8 cannot.
        text = json.dumps(outcome, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text


def storable(text: str | None) -> str | None:
    """Return a text without what UTF-8 or a database's text cannot hold."""
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return text.replace("\0", "�").encode("utf-8", "replace").decode("utf-8")
