"""Python functions as targets, in threads or an event loop."""

import functools
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from convergence_core.errors import CandidateFault, EndpointDownError
from convergence_core.ports import WorstCase
from convergence_core.records import Case, Json, Params, Reply
from tasks.functions.call_forms import CallForm
from tasks.functions.function_results import reply_of, result_json
from tasks.functions.user_functions import UserFunction, is_async
from tasks.functions.workers import FunctionPool, WorkersHungError, WorkTimeoutError
from tasks.targets.request_price import RequestPrice


@dataclass(slots=True, eq=False, kw_only=True)
class FunctionTarget:
    """Target of one function; see ``tasks.functions.call_forms`` for its arguments.

    A call costs what its result reports, or else the price of one request under
    ``prices.function``; without both, it is unknown.
    """

    provider = "function"
    name: str
    form: CallForm
    function: UserFunction
    workers: int
    timeout_s: float
    price: RequestPrice = field(default_factory=RequestPrice)
    reads: AbstractSet[str] | None = None
    """Fields of a result that metrics read; see ``result_json``."""
    _pool: FunctionPool = field(init=False)

    def __post_init__(self) -> None:
        """Create the pool, which starts on first use."""
        self._pool = FunctionPool(self.workers, name="function")

    def request(self, params: Params, case: Case) -> Json:
        """Return the function's name, the input and the parameters."""
        return {"function": self.name, "input": case.input, "params": dict(params)}

    def worst_case(self, params: Params, case: Case) -> WorstCase:  # noqa: ARG002 - as the protocol has it
        """Return the price of one request; the result may report another price later."""
        return WorstCase(usd=self.price.usd)

    async def call(self, params: Params, case: Case) -> Reply:
        """Call the function once.

        Raises:
            CandidateFault: it raised, took too long, or its result cannot be JSON.
            EndpointDownError: all workers hang, and none ended in time.
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
            outcome = await self._pool.run(
                functools.partial(self.function, *args, **keywords),
                functools.partial(result_json, reads=self.reads),
                self.timeout_s,
                is_async=is_async(self.function),
            )
        except WorkTimeoutError:
            raise CandidateFault(
                f"{self.name} took longer than api.request.timeout_seconds={self.timeout_s:g}",
                error_type="timeout",
            ) from None
        except WorkersHungError as error:
            raise EndpointDownError(
                f"all {error} workers are held by calls of {self.name} that never ended, so "
                "no further call is possible. Give the function its own time-outs. Paid answers are "
                "kept; `convergence resume` continues."
            ) from None
        if outcome.failure is not None:
            raise outcome.failure.fault()
        return reply_of(outcome, provider=self.provider)

    async def aclose(self) -> None:
        """End threads and loop; safe to call twice."""
        await self._pool.aclose()
