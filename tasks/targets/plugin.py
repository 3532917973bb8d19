"""Plugin targets, checked and timed like built-in ones."""

from collections.abc import Callable, Set as AbstractSet
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from convergence_core.budget.prices import PriceTable
from convergence_core.config import ApiConfig
from convergence_core.errors import CandidateFault, ConvergenceError
from convergence_core.ports import Target, WorstCase
from convergence_core.records import Case, Json, Params, Reply
from tasks.functions.function_results import read_json
from tasks.json_values import NotJsonError, to_json
from tasks.plugins.calls import PluginCalls, believed_ms, billable, checked_usage, finite
from tasks.plugins.entry_points import Plugin, PluginContext, find_plugin
from tasks.targets.request_price import RequestPrice

T = TypeVar("T")

_METHODS = ("request", "worst_case", "call", "aclose")


@dataclass(slots=True, eq=False)
class PluginTarget:
    """Target of a plugin, whose replies are checked like an endpoint's.

    A call costs what its reply reports, or else the price of one request under ``prices.plugin``;
    without both, it is unknown.
    """

    provider = "plugin"
    plugin: Plugin
    options: Json
    price: RequestPrice
    _target: Target
    _calls: PluginCalls
    reads: AbstractSet[str] | None = None
    """Fields of answers that metrics read; see ``read_json``."""

    def request(self, params: Params, case: Case) -> Json:
        """Return plugin, version, options and the plugin's own request, as the call log's key.

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
        """Return the plugin's bound, with dollars from ``prices.plugin`` if it reports none.

        Raises:
            CandidateFault: these parameters make no request, the plugin failed, or its bound is
                invalid.
        """
        bound = self._of_plugin(lambda: _bound(self._target.worst_case(params, case)))
        return replace(bound, usd=self.price.usd) if bound.usd is None else bound

    async def call(self, params: Params, case: Case) -> Reply:
        """Call the plugin once; see ``PluginCalls.run`` for its faults."""
        ask = partial(self._target.call, *deepcopy((dict(params), case)))
        try:
            reply, took_ms = await self._calls.run(ask, Reply, partial(_storable, self.reads))
        except CandidateFault as fault:  # the call was made
            fault.billed = self.price.bill(fault.billed)
            raise
        return replace(
            reply,
            latency_ms=believed_ms(reply.latency_ms, took_ms),
            cost_usd=self.price.usd if reply.cost_usd is None else reply.cost_usd,
            price_version=self.price.version if reply.cost_usd is None else None,
            provider=self.provider,
        )

    async def aclose(self) -> None:
        """Let the plugin release its resources; safe to call twice."""
        await self._calls.aclose(self._target.aclose)

    def _of_plugin(self, ask: Callable[[], T]) -> T:
        """Return the result of a pure method of the plugin; its exceptions become faults."""
        try:
            return ask()
        except ConvergenceError:
            raise
        except Exception as error:
            message = f"failed before anything was sent: {str(error) or type(error).__name__}"
            kind = getattr(error, "error_type", None) or type(error).__name__
            raise CandidateFault(f"{self.plugin.title} {message}", error_type=str(kind)) from error


def make_plugin_target(
    api: ApiConfig, context: PluginContext, *, prices: PriceTable | None = None
) -> PluginTarget:
    """Return the target that ``api.plugin`` names.

    Raises:
        ConfigurationError: the plugin is not installed or does not work.
    """
    plugin = find_plugin("convergence.targets", context)
    target = plugin.make(context, _METHODS)
    return PluginTarget(
        plugin,
        dict(api.plugin_options),
        RequestPrice.of(prices, PluginTarget.provider),
        target,
        PluginCalls(plugin, timeout_s=context.timeout_s, n_workers=context.n_workers),
    )


def _bound(value: object) -> WorstCase:
    """Return a worst case whose numbers can be reserved.

    Raises:
        NotJsonError: the value is no worst case, or a number is invalid.
    """
    if not isinstance(value, WorstCase):
        raise NotJsonError(f"worst_case() is a {type(value).__name__}", error_type="bad_result")
    usd = billable(value.usd, "worst_case().usd")
    tokens = billable(value.tokens, "worst_case().tokens")
    return WorstCase(usd=usd, tokens=None if tokens is None else int(tokens))


def _storable(reads: AbstractSet[str] | None, reply: Reply) -> Reply:
    """Return a reply whose values fit JSON and whose numbers are valid.

    Raises:
        NotJsonError: its value, its cost or another number is invalid.
    """
    return replace(
        reply,
        value=read_json(reply.value, reads),
        cost_usd=billable(reply.cost_usd, "cost_usd"),
        usage=checked_usage(reply.usage),
        extra={str(name): finite(number, str(name)) for name, number in reply.extra.items()},
    )
