"""Targets of plugins: checked and timed as those that come with this package."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from convergence_core.budget.prices import PriceTable
from convergence_core.config import ApiConfig
from convergence_core.config.secrecy import shown
from convergence_core.errors import (
    CandidateFault,
    ConvergenceError,
    EndpointDownError,
    InfrastructureFault,
)
from convergence_core.ports import Target, WorstCase
from convergence_core.records import Case, Json, Params, Reply, Usage
from tasks.functions.workers import (
    LoopPool,
    WorkersHungError,
    WorkOutcome,
    WorkTimeoutError,
    measured_async,
)
from tasks.json_values import MOST_BILLED, NotJsonError, to_json
from tasks.plugins.entry_points import Plugin, PluginContext, find_plugin
from tasks.secrets.redaction import Secrets
from tasks.targets.request_price import RequestPrice

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_CLOSE_S = 5.0
"""How long a plugin may take to free what it holds."""

_METHODS = ("request", "worst_case", "call", "aclose")


@dataclass(slots=True, eq=False)
class PluginTarget:
    """Asks a plugin's target, and believes it no more than an endpoint.

    Its calls run in an event loop of their own, so that one that blocks holds up no other target.
    A call costs what its reply says, else the price of one request under ``prices.plugin``, else
    it is unknown.
    """

    provider = "plugin"
    plugin: Plugin
    options: Json
    timeout_s: float
    price: RequestPrice
    _target: Target
    _pool: LoopPool
    _is_closed: bool = False

    def request(self, params: Params, case: Case) -> Json:
        """Return plugin, version, options and the plugin's own request; the journal's key.

        Raises:
            CandidateFault: these parameters make no request, or the plugin failed.
        """
        return {
            "plugin": self.plugin.name,
            "version": self.plugin.version,
            "options": self.options,
            "request": self._of_plugin(lambda: to_json(self._target.request(params, case))),
        }

    def worst_case(self, params: Params, case: Case) -> WorstCase:
        """Return the plugin's bound, its dollars by ``prices.plugin`` where it knows none.

        Raises:
            CandidateFault: these parameters make no request, or the plugin failed or gave a bound
                that is none.
        """
        found = self._of_plugin(lambda: _bound(self._target.worst_case(params, case)))
        return replace(found, usd=self.price.usd) if found.usd is None else found

    async def call(self, params: Params, case: Case) -> Reply:
        """Ask the plugin once.

        An ``OSError`` (``ConnectionError``, ``TimeoutError``) is the network's; every other
        exception that is no fault of its own is the candidate's, as with a function.

        Raises:
            CandidateFault: the plugin says so, raised, or returned what is no reply.
            EndpointDownError: all calls hang, and none came free in time.
            InfrastructureFault: the plugin says so, the network failed, or it took too long.
        """
        work = partial(measured_async, partial(self._asked, params, case), _plain)
        try:
            outcome = await self._pool.run(work, self.timeout_s)
        except WorkTimeoutError:
            raise InfrastructureFault(
                f"{self.plugin.told} took longer than api.request.timeout_seconds={self.timeout_s:g}",
                error_type="timeout",
                may_be_billed=True,
            ) from None
        except WorkersHungError as error:
            raise EndpointDownError(
                f"all {error} calls of {self.plugin.told} hang and cannot be ended, so nothing more "
                "can be asked. Give the plugin's requests time-outs of their own. What was answered "
                "is kept, and `convergence resume` goes on."
            ) from None
        try:
            found = self._result_of(outcome)
        except CandidateFault as fault:  # it was asked
            fault.billed = self.price.bill(fault.billed)
            raise
        return replace(
            found,
            latency_ms=_latency(found.latency_ms, outcome.latency_ms),
            cost_usd=self.price.usd if found.cost_usd is None else found.cost_usd,
            price_version=self.price.version if found.cost_usd is None else None,
            provider=self.provider,
        )

    async def aclose(self) -> None:
        """Let the plugin free what it holds; safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        try:  # in the loop that its connections belong to
            work = partial(measured_async, self._target.aclose, lambda _: None)
            failure = (await self._pool.run(work, _CLOSE_S)).failure
            told = None if failure is None else f"{failure.error_type}: {failure.message}"
        except (WorkTimeoutError, WorkersHungError) as error:
            told = type(error).__name__
        if told is not None:
            _LOG.warning("%s could not be closed: %s", self.plugin.told, told)
        await self._pool.aclose()

    async def _asked(self, params: Params, case: Case) -> object:
        """Return the plugin's reply, or the fault that it raised on purpose."""
        try:
            return await self._target.call(params, case)
        except ConvergenceError as error:
            return error
        except OSError as error:
            return InfrastructureFault(
                f"{self.plugin.told}: {str(error) or type(error).__name__}",
                error_type=type(error).__name__,
                may_be_billed=not isinstance(error, ConnectionRefusedError),
            )

    def _result_of(self, outcome: WorkOutcome) -> Reply:
        if outcome.failure is not None:
            failure = outcome.failure
            raise CandidateFault(
                f"{self.plugin.told}: {failure.message}",
                error_type=failure.error_type,
                details=failure.details,
            )
        found = outcome.value
        if isinstance(found, ConvergenceError):
            raise found
        if not isinstance(found, Reply):
            raise self._fault(f"returned a {type(found).__name__}, not a `Reply`", "bad_result")
        return found

    def _of_plugin(self, ask: Callable[[], T]) -> T:
        """Return what a pure method of the plugin returns; its exceptions become faults."""
        try:
            return ask()
        except ConvergenceError:
            raise
        except Exception as error:
            message = f"failed before anything was sent: {str(error) or type(error).__name__}"
            kind = getattr(error, "error_type", None) or type(error).__name__
            raise self._fault(message, str(kind)) from error

    def _fault(self, what: str, error_type: str) -> CandidateFault:
        return CandidateFault(f"{self.plugin.told} {what}", error_type=error_type)


def make_plugin_target(
    api: ApiConfig, context: PluginContext, *, prices: PriceTable | None = None
) -> PluginTarget:
    """Return the target that ``api.plugin`` names.

    Raises:
        ConfigurationError: no such plugin is installed, or it does not work.
    """
    plugin = find_plugin("convergence.targets", context.name, key=context.key)
    target = plugin.make(context)
    lacking = [name for name in _METHODS if not callable(getattr(target, name, None))]
    if lacking:
        missing = ", ".join(f"`{name}`" for name in lacking)
        raise plugin.broken(context, f"made a {type(target).__name__}, which lacks {missing}")
    return PluginTarget(
        plugin,
        dict(api.plugin_options),
        context.timeout_s,
        RequestPrice.of(prices, PluginTarget.provider),
        target,
        LoopPool(context.n_workers, name=f"plugin-{plugin.name}"),
    )


def token_of(api: ApiConfig, secrets: Secrets) -> str | None:
    """Return the key that ``api.auth`` names; ``None``: it names none.

    Raises:
        ConfigurationError: the variable is not set.
    """
    if api.auth.type == "none" or api.auth.token_env is None:
        return None
    return secrets.get(api.auth.token_env, key="api.auth.token_env").get_secret_value()


def _bound(found: object) -> WorstCase:
    """Return a worst case whose numbers can be reserved.

    Raises:
        NotJsonError: it is none.
    """
    if not isinstance(found, WorstCase):
        raise NotJsonError(f"worst_case() is a {type(found).__name__}", error_type="bad_result")
    usd, tokens = (
        _amount(found.usd, "worst_case().usd"),
        _amount(found.tokens, "worst_case().tokens"),
    )
    return WorstCase(usd=usd, tokens=None if tokens is None else int(tokens))


def _plain(found: object) -> object:
    """Return a reply with values that JSON can carry and numbers that are some.

    Raises:
        NotJsonError: its value, its bill or a number of it is none.
    """
    if not isinstance(found, Reply):
        return found
    usage = {name: _amount(number, name) for name, number in Usage.to_json(found.usage).items()}
    extra = {str(name): _number(number, str(name)) for name, number in found.extra.items()}
    return replace(
        found,
        value=to_json(found.value),
        cost_usd=_amount(found.cost_usd, "cost_usd"),
        usage=Usage(**{name: int(n) for name, n in usage.items() if n is not None}),
        extra=extra,
    )


def _amount(value: object, name: str) -> float | None:
    """Return dollars or tokens that can be billed; ``None``: unknown.

    Raises:
        NotJsonError: it is no number from 0 to ``MOST_BILLED``.
    """
    if value is None:
        return None
    number = _number(value, name)
    if not 0 <= number <= MOST_BILLED:
        raise NotJsonError(
            f"`{name}` is {number!r}, not from 0 to {MOST_BILLED:g}", error_type="bad_bill"
        )
    return number


def _number(value: object, name: str) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not abs(value) <= 1.7e308 or not math.isfinite(value):  # type: ignore[arg-type]
        raise NotJsonError(
            f"`{name}` is {shown(value)}, not a finite number", error_type="not_finite"
        )
    return float(value)  # type: ignore[arg-type]


def _latency(told: object, measured_ms: float) -> float:
    """Return the plugin's own measurement where it is one and not longer than ours."""
    is_number = isinstance(told, (int, float)) and not isinstance(told, bool)
    return float(told) if is_number and 0 < told <= measured_ms else measured_ms  # type: ignore[operator, arg-type]
