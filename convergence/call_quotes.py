"""Quotes of single calls: tokens and dollars, from requests or earlier runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from convergence_core.budget.prices import Price
from convergence_core.records import Usage

if TYPE_CHECKING:
    from tasks.inputs.loader import Loaded


_HISTORY = """
    SELECT a.purpose, count(*) AS n_calls, count(DISTINCT a.run_id) AS n_runs,
           avg(a.tokens_in + a.tokens_out) AS tokens, avg(a.cost_usd) AS usd,
           greatest(tokens, quantile_cont(a.tokens_in + a.tokens_out, 0.9)) AS high_tokens,
           greatest(usd, quantile_cont(a.cost_usd, 0.9)) AS high_usd
    FROM attempts a JOIN runs r USING (run_id)
    WHERE r.name = $name AND a.state = 'done'
    GROUP BY a.purpose HAVING count(a.cost_usd) = count(*)"""


@dataclass(frozen=True, slots=True)
class Amount:
    """Expected and largest value of a number; ``None`` if unknown."""

    expected: float | None = None
    high: float | None = None

    def __add__(self, other: "Amount") -> "Amount":
        """Return the sum of each end."""
        return Amount(_sum(self.expected, other.expected), _sum(self.high, other.high))

    def __mul__(self, other: "Amount") -> "Amount":
        """Return the product of each end."""
        return Amount(_product(self.expected, other.expected), _product(self.high, other.high))

    def at_most(self, limit: float | None) -> "Amount":
        """Return the amount under a limit, which also bounds an unknown end."""
        if limit is None:
            return self
        expected = None if self.expected is None else min(self.expected, limit)
        return Amount(expected, limit if self.high is None else min(self.high, limit))


UNKNOWN, NOTHING = Amount(), Amount(0, 0)


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _product(a: float | None, b: float | None) -> float | None:
    if a == 0 or b == 0:  # no calls cost nothing at any price
        return 0.0
    return None if a is None or b is None else a * b


def mean_and_most(amounts: Sequence[Amount]) -> Amount:
    """Return the mean and the maximum of several amounts; an end is unknown if any amount's is."""
    expected = [amount.expected for amount in amounts if amount.expected is not None]
    high = [amount.high for amount in amounts if amount.high is not None]
    return Amount(
        fmean(expected) if expected and len(expected) == len(amounts) else None,
        max(high) if high and len(high) == len(amounts) else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallQuote:
    """Quote of one call."""

    model: str
    """Provider's name of the model; empty for other targets."""
    tokens: Amount
    usd: Amount
    answer: Amount
    """Tokens of the answer."""
    reserved_usd: float | None
    """The budget's reservation if messages of other calls have the usual length."""
    unknown: str | None
    """Why the price is unknown, and the fix."""

    @classmethod
    def of(
        cls, model: str | None, price: Price | None, prompt: Amount, answer: Amount
    ) -> "CallQuote":
        """Return the quote of a call of a language model, given its tokens."""
        unknown = None
        if price is None:
            unknown = f"the price of {model} is unknown. Write it under `prices:`."
        elif prompt.high is None:
            unknown = "the length of its prompt is unknown before the first run."
        usage = Usage(
            prompt_tokens=round(prompt.expected or 0),
            completion_tokens=round(answer.expected or 0),
        )
        worst = None
        if price is not None and prompt.high is not None:
            longest = None if answer.high is None else round(answer.high)
            worst = price.worst_case(round(prompt.high), longest)
            if worst is None:
                unknown = "the longest answer is unknown. Set `max_tokens` of the request."
        return cls(
            model=model or "",
            tokens=prompt + answer,
            usd=Amount(None if price is None else price.cost(usage), worst),
            answer=answer,
            reserved_usd=worst,
            unknown=unknown,
        )


def largest(quotes: Sequence[CallQuote]) -> tuple[float, float]:
    """Return the most dollars and tokens of several calls."""
    return (
        max((quote.usd.high or 0.0 for quote in quotes), default=-1.0),
        max((quote.tokens.high or 0.0 for quote in quotes), default=-1.0),
    )


def call_history(loaded: "Loaded") -> dict[str, tuple[Amount, Amount, str]]:
    """Return purpose → tokens and dollars of a call in earlier runs of the system, and their source."""
    path = loaded.base_dir / loaded.configuration.storage.folder
    if not (path / "store.json").is_file():
        return {}
    from tasks.store.tables.parquet_store import ParquetStore  # noqa: PLC0415 - brings DuckDB

    store = ParquetStore(path)
    try:
        rows: Sequence[dict[str, Any]] = store.rows(
            _HISTORY, {"name": loaded.configuration.api.name}
        )
    finally:
        store.close()
    history = {}
    for row in rows:
        runs = "1 earlier run" if row["n_runs"] == 1 else f"{row['n_runs']:,} earlier runs"
        history[row["purpose"]] = (
            Amount(row["tokens"], row["high_tokens"]),
            Amount(row["usd"], row["high_usd"]),
            f"calibrated by {row['n_calls']:,} calls of {runs}",
        )
    return history
