"""Python functions as targets: in threads, in a loop, or in processes."""

import functools
import sys
from collections.abc import Mapping, Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from convergence_core.budget.prices import PriceTable
from convergence_core.errors import (
    CandidateFault,
    ConfigurationError,
    EndpointDownError,
)
from convergence_core.ports import WorstCase
from convergence_core.records import Case, Json, Params, Reply
from tasks.functions.call_forms import CallForm, call_form
from tasks.functions.function_processes import FunctionProcesses
from tasks.functions.function_results import reply_of, result_json
from tasks.functions.user_functions import UserFunction, describe, is_async
from tasks.functions.workers import (
    LoopPool,
    ThreadPool,
    WorkersHungError,
    WorkOutcome,
    WorkTimeoutError,
    measured,
    measured_async,
)
from tasks.targets.request_price import RequestPrice


class FunctionRunner(Protocol):
    """Where a function runs."""

    async def run(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> WorkOutcome:
        """Call the function and return how it ended.

        Raises:
            WorkTimeoutError: it took too long.
            WorkersHungError: no worker is left.
        """
        ...

    async def aclose(self) -> None:
        """End the workers; safe to call twice."""
        ...


@dataclass(slots=True, eq=False)
class FunctionTarget:
    """Calls one function; see ``tasks.functions.call_forms`` for how.

    A call costs what its result says, else the price of one request under ``prices.function``,
    else it is unknown.
    """

    provider = "function"
    name: str
    form: CallForm
    runner: FunctionRunner
    timeout_s: float
    price: RequestPrice

    def request(self, params: Params, case: Case) -> Json:
        """Return the function's name, the input and the parameters."""
        return {"function": self.name, "input": case.input, "params": dict(params)}

    def worst_case(self, params: Params, case: Case) -> WorstCase:  # noqa: ARG002 - as the protocol has it
        """Return the price of one request; a result that names another is believed afterwards."""
        return WorstCase(usd=self.price.usd)

    async def call(self, params: Params, case: Case) -> Reply:
        """Call the function once.

        Raises:
            CandidateFault: it raised, took too long, or returned what JSON cannot carry.
            EndpointDownError: all workers hang, and none came free in time.
            InfrastructureFault: its process died.
        """
        try:
            reply = await self._call(params, case)
        except CandidateFault as fault:
            fault.billed = self.price.bill(fault.billed)
            raise
        if reply.cost_usd is not None or self.price.usd is None:
            return reply
        return replace(reply, cost_usd=self.price.usd, price_version=self.price.version)

    async def _call(self, params: Params, case: Case) -> Reply:
        args, keywords = self.form.arguments(case.input, params)
        try:
            outcome = await self.runner.run(args, keywords)
        except WorkTimeoutError:
            raise CandidateFault(
                f"{self.name} took longer than api.request.timeout_seconds={self.timeout_s:g}",
                error_type="timeout",
            ) from None
        except WorkersHungError as error:
            raise EndpointDownError(
                f"all {error} workers are held by calls of {self.name} that never ended, so "
                "nothing more can be asked. Give the function time-outs of its own, or write "
                "`workers: processes`, which can be ended. What was answered is kept, and "
                "`convergence resume` goes on."
            ) from None
        if outcome.failure is not None:
            raise outcome.failure.fault()
        return reply_of(outcome, provider=self.provider)

    async def aclose(self) -> None:
        """End threads or processes; safe to call twice."""
        await self.runner.aclose()


class LocalRunner:
    """Runs a function in this process."""

    def __init__(self, function: UserFunction, *, workers: int, timeout_s: float) -> None:
        self._function = function
        self._timeout_s = timeout_s
        self._is_async = is_async(function)
        self._threads = ThreadPool(workers, name="function")
        self._own_loop = LoopPool(workers, name="function-loop")

    async def run(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> WorkOutcome:
        """Call the function; see ``FunctionRunner.run``."""
        call = functools.partial(self._function, *args, **keywords)
        if self._is_async:
            work = functools.partial(measured_async, call, result_json)
            return await self._own_loop.run(work, self._timeout_s)
        return await self._threads.run(
            functools.partial(measured, call, result_json), self._timeout_s
        )

    async def aclose(self) -> None:
        """End threads and loop; safe to call twice."""
        await self._threads.aclose()
        await self._own_loop.aclose()


def make_function_target(
    function: UserFunction,
    *,
    known: AbstractSet[str],
    workers: int,
    timeout_s: float,
    key: str,
    process_path: str | None,
    base_dir: Path,
    name: str | None = None,
    prices: PriceTable | None = None,
) -> FunctionTarget:
    """Return the target of a function.

    Args:
        function: the function.
        known: names of all parameters and input fields, for its signature.
        workers: threads, coroutines or processes at once.
        timeout_s: longest duration of one call.
        key: configuration key, for errors.
        process_path: where a process finds it, ``module:name`` or ``file.py:name``; ``None``:
            it runs in this process.
        base_dir: folder that relative paths start from.
        name: how requests and messages call it.
        prices: what calls cost; ``None`` if unknown.

    Raises:
        ConfigurationError: its signature fits no call form.
    """
    form = call_form(function, known, key=key)
    runner: FunctionRunner
    if process_path is None:
        runner = LocalRunner(function, workers=workers, timeout_s=timeout_s)
    else:
        runner = FunctionProcesses(process_path, base_dir, workers=workers, timeout_s=timeout_s)
    price = RequestPrice.of(prices, FunctionTarget.provider)
    return FunctionTarget(name or describe(function), form, runner, timeout_s, price)


def importable_path(function: UserFunction) -> str:
    """Return how another process finds a function: ``module:name`` or ``file.py:name``.

    Raises:
        ConfigurationError: it has no such name, e.g. a lambda.
    """
    name = getattr(function, "__qualname__", "<")
    module = getattr(function, "__module__", None)
    if module is None or "<" in name:
        rule = "must be `threads` for a function without an importable name"
        fix = "Define it by `def` at the top of a module, or write `workers: threads`."
        raise ConfigurationError.of("api.workers", rule, fix, value=describe(function))
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is not None and (module == "__main__" or module.startswith("convergence_user_")):
        return f"{Path(file).resolve()}:{name}"
    return f"{module}:{name}"
