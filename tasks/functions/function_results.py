"""Results of functions: a value, or an envelope with costs and metrics."""

import re
import sys
from collections.abc import Mapping, Set as AbstractSet
from functools import partial

from convergence_core.config.secrecy import shown
from convergence_core.errors import Billed, CandidateFault
from convergence_core.records import NO_USAGE, Json, Reply, Usage, fields_of
from tasks.functions.workers import WorkOutcome
from tasks.json_values import MOST_BILLED, NotJsonError, as_text, says_failed, to_json

ENVELOPE = frozenset(
    {"result", "success", "error", "cost_usd", "tokens_in", "tokens_out", "metrics", "model"}
)
"""Keys of an envelope, which must include ``result``."""
_SAID = ENVELOPE - {"result"}
_NAMES = re.compile(r"[^.\[\]]+")
_BILLED = frozenset({"cost_usd", "tokens_in", "tokens_out"})
"""Keys that make a mapping with ``result`` an envelope, whatever its other keys."""


def result_json(value: object, reads: AbstractSet[str] | None = None) -> Json:
    """Convert a function's result to JSON; see ``read_json``.

    An envelope's unused keys may have no JSON form.
    """
    if isinstance(value, Mapping) and "result" in value and value.keys() & _BILLED:
        value = {key: value[key] for key in value if key in ENVELOPE}
    return read_json(value, None if reads is None else reads | _SAID)


def read_json(value: object, reads: AbstractSet[str] | None) -> Json:
    """Return a result as JSON.

    Args:
        value: Result of the function.
        reads: Fields that metrics read; a non-finite number elsewhere becomes ``None``. ``None``
            means that metrics read the whole.

    Raises:
        NotJsonError: the result has no JSON form; the message gives the place and reason.
    """
    try:
        firsts = {name for path in reads or () for name in _NAMES.findall(path)[:1]}
        return to_json(value, None if reads is None else partial(_is_read, firsts))
    except NotJsonError as error:
        raise NotJsonError(f"in the result, {error}", error_type=error.error_type) from error


def _is_read(firsts: AbstractSet[str], path: str) -> bool:
    """Return whether metrics may read a number, by the first names of both paths."""
    first, *rest = _NAMES.findall(path) or [""]
    if first == "result" and first not in firsts:
        first = rest[0] if rest else ""
    return not first or first in firsts


def reply_of(outcome: WorkOutcome, *, provider: str) -> Reply:
    """Return the reply for a function's converted result.

    Raises:
        CandidateFault: the function reports a failure, or invalid numbers.
    """
    value: Json = outcome.value  # type: ignore[assignment]  # converted in the worker
    rest: dict[str, Json] = {}
    if isinstance(value, dict):
        _raise_if_reported(value)
        if "result" in value and (value.keys() <= ENVELOPE or value.keys() & _BILLED):
            rest, value = value, value["result"]
    bill = _bill(rest)
    return Reply(
        value=value,
        latency_ms=outcome.latency_ms,
        **fields_of(bill, "cost_usd", "usage", "model"),
        provider=provider,
        extra=_metrics(rest),
    )


def _raise_if_reported(value: dict[str, Json]) -> None:
    reason = value.get("error")
    is_envelope = value.keys() <= ENVELOPE
    says_why = isinstance(reason, (str, dict)) and reason and value.get("result") is None
    if says_failed(value) or (says_why and is_envelope):
        why = "the function reported a failure" if reason is None else as_text(reason)
        bill = _bill(value) if is_envelope or value.keys() & _BILLED else None
        says_nothing = bill is None or (bill.cost_usd is None and bill.usage == NO_USAGE)
        raise CandidateFault(
            why,
            error_type="reported_failure",
            billed=None if says_nothing else bill,
        )


def _bill(rest: Mapping[str, Json]) -> Billed:
    model = rest.get("model")
    return Billed(
        usage=Usage(
            prompt_tokens=_count(rest, "tokens_in"), completion_tokens=_count(rest, "tokens_out")
        ),
        cost_usd=_number(rest, "cost_usd"),
        model=model if isinstance(model, str) else None,
    )


def _number(rest: Mapping[str, Json], key: str) -> float | None:
    value = rest.get(key)
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MOST_BILLED:  # type: ignore[operator]
        raise CandidateFault(
            f"the function returned `{key}` = {shown(value)}, not a number from 0 to "
            f"{MOST_BILLED:g}",
            error_type="bad_result",
        )
    return float(value)  # type: ignore[arg-type]


def _count(rest: Mapping[str, Json], key: str) -> int | None:
    number = _number(rest, key)
    return None if number is None else int(number)


def _metrics(rest: Mapping[str, Json]) -> dict[str, float]:
    metrics = rest.get("metrics")
    if metrics is None:
        return {}
    if isinstance(metrics, dict):
        numbers = {name: n for name, n in metrics.items() if isinstance(n, (bool, int, float))}
        if len(numbers) == len(metrics) and all(
            abs(number) <= sys.float_info.max for number in numbers.values()
        ):
            return {name: float(number) for name, number in numbers.items()}
    raise CandidateFault(
        "the function returned `metrics` that are not numbers by name", error_type="bad_result"
    )
