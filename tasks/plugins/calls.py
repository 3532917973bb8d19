"""Calls of a plugin's code, in a separate loop, with a time-out and faults."""

import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from convergence_core.config.secrecy import shown
from convergence_core.errors import (
    CandidateFault,
    ConvergenceError,
    EndpointDownError,
    InfrastructureFault,
)
from convergence_core.records import Usage
from tasks.functions.workers import LoopPool, WorkersHungError, WorkTimeoutError, measured_async
from tasks.json_values import MOST_BILLED, NotJsonError
from tasks.plugins.entry_points import Plugin

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_CLOSE_S = 5.0
"""Maximum seconds for a plugin to release its resources."""


class PluginCalls:
    """Caller of one plugin, isolated so that its blocking or failing harms nothing else.

    Args:
        plugin: Plugin to call.
        timeout_s: Maximum seconds of one call.
        n_workers: Maximum calls in flight.
    """

    def __init__(self, plugin: Plugin, *, timeout_s: float, n_workers: int) -> None:
        self._plugin = plugin
        self._timeout_s = timeout_s
        self._pool = LoopPool(n_workers, name=f"plugin-{plugin.name}")
        self._is_closed = False

    async def run(
        self, call: Callable[[], Awaitable[object]], kind: type[T], check: Callable[[T], T]
    ) -> tuple[T, float]:
        """Return the checked result of a call, and its milliseconds.

        Exceptions become faults as in functions; see ``WorkerFailure.fault``.

        Args:
            call: Call of the plugin's code.
            kind: Required type of the result.
            check: Function that returns a storable result or raises ``NotJsonError``.

        Raises:
            CandidateFault: the plugin raised it or another exception, or returned another type.
            EndpointDownError: all calls hang, and none ended in time.
            InfrastructureFault: the plugin raised it, the network failed, or the call took too
                long.
        """
        plugin_text = self._plugin.title
        work = partial(
            measured_async,
            partial(self._call_without_secrets, call),
            partial(_checked, kind, check),
        )
        try:
            outcome = await self._pool.run(work, self._timeout_s)
        except WorkTimeoutError:
            raise InfrastructureFault(
                f"{plugin_text} took longer than api.request.timeout_seconds={self._timeout_s:g}",
                error_type="timeout",
                may_be_billed=True,
            ) from None
        except WorkersHungError as error:
            raise EndpointDownError(
                f"all {error} calls of {plugin_text} hang and cannot be stopped, so no further call is possible. "
                "Give the plugin's requests their own time-outs. Paid answers are kept; "
                "`convergence resume` continues."
            ) from None
        if outcome.failure is not None:
            raise outcome.failure.fault(f"{plugin_text}: ")
        value = outcome.value
        if isinstance(value, ConvergenceError):
            raise value
        if not isinstance(value, kind):
            message = f"{plugin_text} returned a {type(value).__name__}, not a `{kind.__name__}`"
            raise CandidateFault(message, error_type="bad_result")
        return value, outcome.latency_ms

    async def aclose(self, close: Callable[[], Awaitable[object]]) -> None:
        """Let the plugin release its resources in its own loop; safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            work = partial(measured_async, close, lambda _: None)
            failure = (await self._pool.run(work, _CLOSE_S)).failure
            problem = None if failure is None else f"{failure.error_type}: {failure.message}"
        except (WorkTimeoutError, WorkersHungError) as error:
            problem = type(error).__name__
        if problem is not None:
            _LOG.warning("%s could not be closed: %s", self._plugin.title, problem)
        await self._pool.aclose()

    async def _call_without_secrets(self, call: Callable[[], Awaitable[object]]) -> object:
        """Return the result of a call, or its deliberate fault."""
        try:
            return await call()
        except ConvergenceError as error:
            return error


def _checked(kind: type[T], check: Callable[[T], T], value: object) -> object:
    return check(value) if isinstance(value, kind) else value


def checked_usage(usage: Usage) -> Usage:
    """Return token counts as integers.

    Raises:
        NotJsonError: a count is not a number from 0 to ``MOST_BILLED``.
    """
    numbers = {name: billable(number, name) for name, number in Usage.to_json(usage).items()}
    return Usage(**{name: int(number) for name, number in numbers.items() if number is not None})


def billable(value: object, name: str) -> float | None:
    """Return valid dollars or tokens; ``None`` if unknown.

    Raises:
        NotJsonError: the value is not a number from 0 to ``MOST_BILLED``.
    """
    if value is None:
        return None
    number = finite(value, name)
    if not 0 <= number <= MOST_BILLED:
        raise NotJsonError(
            f"`{name}` is {number!r}, not from 0 to {MOST_BILLED:g}", error_type="bad_bill"
        )
    return number


def finite(value: object, name: str) -> float:
    """Return a number as a float.

    Raises:
        NotJsonError: the value is not a finite number.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not abs(value) <= 1.7e308 or not math.isfinite(value):  # type: ignore[arg-type]
        raise NotJsonError(
            f"`{name}` is {shown(value)}, not a finite number", error_type="not_finite"
        )
    return float(value)  # type: ignore[arg-type]


def believed_ms(reported: object, measured_ms: float) -> float:
    """Return the plugin's reported milliseconds if valid and not longer than ours; else ours."""
    is_number = isinstance(reported, (int, float)) and not isinstance(reported, bool)
    return float(reported) if is_number and 0 < reported <= measured_ms else measured_ms  # type: ignore[operator, arg-type]
