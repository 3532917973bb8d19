"""Metrics from user functions, in both call forms of version 0.1.

``f(result, expected, params, metric)`` returns a number; ``f(prediction={"result": …}, expected=…,
context={"params": …})`` returns a dictionary or a number. Arguments are passed by name if the
function has them, else by position. Sync functions run in threads and async ones in a separate
event loop, so that a slow metric delays no call.
"""

import asyncio
import functools
import sys
from collections import OrderedDict
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from convergence_core.config.secrecy import shown
from convergence_core.errors import ConfigurationError, EvaluatorFault
from convergence_core.records import Case, Params, Reply, fields_of
from tasks.functions.call_forms import FunctionShape
from tasks.functions.user_functions import UserFunction, arguments_of, describe, is_async
from tasks.functions.workers import (
    MISSING_PACKAGE,
    FunctionPool,
    WorkersHungError,
    WorkOutcome,
    WorkTimeoutError,
)
from tasks.json_values import NotJsonError, to_json
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

EVALUATOR_TIMEOUT_S = 300.0
"""Maximum seconds of a user's metric for one answer."""
_N_REMEMBERED = 1024

_NAMES = ("result", "expected", "params", "metric")
_MORE_NAMES = ("prediction", "context", "input", "case", "reply")


class UserEvaluator:
    """User function; metrics that share it share its calls."""

    def __init__(self, function: UserFunction, *, n_workers: int, key: str) -> None:
        self._function = function
        self._arguments = _Arguments(function, key=key)
        self._is_async = is_async(function)
        self._pool = FunctionPool(n_workers, name="metric")
        self._calls: OrderedDict[tuple[int, str | None], tuple[Reply, asyncio.Task[WorkOutcome]]]
        self._calls = OrderedDict()

    async def value(self, metric: str, reply: Reply, case: Case, params: Params) -> float | None:
        """Return the metric's value; ``None`` if the function reports it as unknown.

        Raises:
            EvaluatorFault: the function raised, took too long, or returned no finite number.
        """
        outcome = await self._outcome(metric, reply, case, params)
        if outcome.failure is not None:
            if outcome.failure.error_type == MISSING_PACKAGE:
                raise outcome.failure.fault(f"metric `{metric}`: ")
            raise EvaluatorFault(
                f"metric `{metric}`: {outcome.failure.error_type}: {outcome.failure.message}",
                **fields_of(outcome.failure, "error_type", "details"),
            )
        result = outcome.value
        if isinstance(result, Mapping):
            result = self._of_mapping(result, metric, reply)
        if result is None:
            return None
        if not isinstance(result, (bool, int, float)):
            excerpt = one_line(str(result), 100, redacted_text)
            raise self._no_number(metric, f"returned {excerpt!r}")
        if not abs(result) <= sys.float_info.max:  # a whole number can be too large for a float
            excerpt = shown(result)
            raise self._no_number(metric, f"returned {excerpt}", error_type="not_finite")
        return float(result)

    async def aclose(self) -> None:
        """Stop its threads; safe to call twice."""
        await self._pool.aclose()

    async def _outcome(self, metric: str, reply: Reply, case: Case, params: Params) -> WorkOutcome:
        """Call the function, or await the same call of another metric."""
        key = (id(reply), metric if self._arguments.wants_metric else None)
        outcome = self._calls.get(key)
        if outcome is None or outcome[0] is not reply:
            task = asyncio.ensure_future(self._call(metric, reply, case, params))
            self._calls[key] = (reply, task)  # holding the reply keeps its id unique
            while len(self._calls) > _N_REMEMBERED:
                self._calls.popitem(last=False)
        else:
            task = outcome[1]
        try:
            return await asyncio.shield(task)
        except WorkTimeoutError:
            why = f"took longer than {EVALUATOR_TIMEOUT_S:g} s"
            raise EvaluatorFault(f"metric `{metric}` {why}", error_type="timeout") from None
        except WorkersHungError:
            why = "hangs in all its threads, so no further answer can be measured"
            raise EvaluatorFault(f"metric `{metric}` {why}", error_type="hung") from None

    async def _call(self, metric: str, reply: Reply, case: Case, params: Params) -> WorkOutcome:
        args, keywords = self._arguments.bind(metric, reply, case, params)
        call = functools.partial(self._function, *args, **keywords)
        return await self._pool.run(call, _plain, EVALUATOR_TIMEOUT_S, is_async=self._is_async)

    def _of_mapping(self, mapping: Mapping[str, Any], metric: str, reply: Reply) -> Any:
        for name in (metric, "score", "value"):
            if name in mapping:
                return mapping[name]
        if metric in reply.extra:
            return reply.extra[metric]
        names = ", ".join(str(name) for name in list(mapping)[:8]) or "nothing"
        raise self._no_number(metric, f"returned a dictionary of {names}, without `{metric}`")

    def _no_number(
        self, metric: str, problem: str, *, error_type: str = "no_number"
    ) -> EvaluatorFault:
        return EvaluatorFault(
            f"metric `{metric}`: {describe(self._function)} {problem}, not a finite number; a metric "
            "returns one number, or a dictionary with its name, e.g. {'" + metric + "': 0.8}",
            error_type=error_type,
        )


def _plain(value: object) -> object:
    """Convert numpy values to plain numbers and dictionaries; the caller checks for NaN.

    It also converts numbers of user types, since their methods may have side effects.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (float, int)):
        return float(value) if isinstance(value, float) else int(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    tolist = getattr(value, "tolist", None)  # numpy's scalars and 0-d arrays
    if callable(tolist):
        value = tolist()
        if isinstance(value, (float, int)):
            return _plain(value)
    try:
        return to_json(value)
    except NotJsonError:
        return f"a {type(value).__name__}"


class _Arguments:
    """Arguments of a user's metric, by its signature."""

    def __init__(self, function: UserFunction, *, key: str) -> None:
        self._names: frozenset[str] | None = None
        self._answer = "result"
        self._n_positional = len(_NAMES)
        self.wants_metric = True
        arguments = arguments_of(function)
        if arguments is None:
            return
        shape = FunctionShape(arguments)
        known = frozenset((*_NAMES, *_MORE_NAMES))
        by_name = known.intersection(shape.keywords)
        others = [name for name in shape.required if name not in by_name]
        is_only = len(others) == 1 and others[0] in shape.keywords
        if by_name and is_only and "result" not in by_name:
            self._answer = others[0]  # a user's name for the answer
            by_name |= {self._answer}
        if by_name.issuperset(shape.required) and (by_name or shape.takes_any):
            self._names = by_name | (frozenset(_NAMES) if shape.takes_any else frozenset())
            self.wants_metric = "metric" in self._names
            return
        positional = [name for name in shape.required if name in shape.positional]
        if (
            len(positional) < len(shape.required)
            or any(n in known - {name} for n, name in zip(positional, _NAMES, strict=False))
            or len(positional) > len(_NAMES)
            or not (positional or shape.takes_more)
        ):
            rule = (
                "must take (result, expected, params, metric) or (prediction, expected, context)"
            )
            fix = (
                "Write e.g. `def quality(result, expected): return float(result == expected)`. Known "
                f"arguments are {', '.join((*_NAMES, *_MORE_NAMES))}."
            )
            raise ConfigurationError.of(key, rule, fix, value=describe(function))
        self._n_positional = len(positional) or len(_NAMES)
        self.wants_metric = self._n_positional == len(_NAMES)

    def bind(
        self, metric: str, reply: Reply, case: Case, params: Params
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments of one call, as copies."""
        plain_params = dict(params)
        core = (reply.value, case.expected, plain_params, metric)
        if self._names is None:
            return deepcopy(core[: self._n_positional]), {}
        offered: dict[str, Any] = dict(zip(_NAMES, core, strict=True))
        offered[self._answer] = reply.value
        if self._names & frozenset(_MORE_NAMES):
            numbers = {"latency_ms": reply.latency_ms, "cost_usd": reply.cost_usd, **reply.extra}
            parts = fields_of(case, "input", "expected", "weight", "group", "description")
            whole = {"id": case.case_id, "tags": list(case.tags), **parts}
            offered |= {
                "prediction": {"result": reply.value},
                "context": {"params": plain_params, "test_case": whole, **numbers},
                "input": case.input,
                "case": whole,
                "reply": {"result": reply.value, **numbers},
            }
        return (), deepcopy({name: offered[name] for name in self._names})
