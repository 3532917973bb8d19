"""Environment of a run: secrets, prices, and the mock server."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import yaml

from convergence_core.budget.prices import PriceTable
from convergence_core.config import Configuration
from convergence_core.config.api import CHAT_KINDS
from convergence_core.errors import CandidateFault, ConfigurationError
from convergence_core.ports import Target
from tasks.calls.metric_calls import ComposedTarget
from tasks.http.authentication import check_environment
from tasks.http.environment import check_network_environment
from tasks.secrets.process_redaction import hide
from tasks.secrets.redaction import Redactor, Secrets, journal_url, target_secret_names

if TYPE_CHECKING:
    from tasks.inputs.loader import Loaded


def shipped(name: str) -> Path:
    """Return the path of a shipped file, e.g. ``prices/prices.yaml``."""
    # In an installation, the data are in the `convergence` package next to this one.
    root = Path(__file__).resolve().parents[2]
    installed, checkout = root / "convergence/_data" / name, root / "data" / name
    return installed if installed.is_file() else checkout


N_PROBES = 64
"""Candidates whose maximum cost is checked before the first call."""

_NAME = "prices/prices.yaml"


@cache
def shipped_prices() -> PriceTable:
    """Return this version's price table.

    Raises:
        FileNotFoundError: the installation is incomplete.
    """
    # The C loader, if it is installed, takes 50 ms instead of half a second.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = shipped(_NAME).read_text(encoding="utf-8")
    return PriceTable.from_mapping(yaml.load(text, loader))  # noqa: S506 - both are safe


def prices_of(configuration: Configuration) -> PriceTable:
    """Return the prices of a configuration's calls."""
    return shipped_prices().with_overrides(configuration.prices)


def unpriced(loaded: "Loaded", target: Target, prices: PriceTable) -> tuple[str, ...]:
    """Return the models of a run whose maximum cost is unknown; no call is made.

    An entry is a model, or the kind of a target without models. Candidates are sampled as in the
    search, with a separate seed.
    """
    unknown: dict[str, None] = {}
    case = loaded.cases[0]
    rng = np.random.default_rng(0)
    probes = [loaded.space.baseline(), *(loaded.space.sample(rng) for _ in range(N_PROBES))]
    for params in (probe for probe in probes if probe is not None):
        try:
            worst = target.worst_case(params, case)
            request = target.request(params, case)
        except CandidateFault:
            continue  # such a candidate is never evaluated
        if worst.usd is None:
            model = request.get("model") if isinstance(request, dict) else None
            if model is None and isinstance(target, ComposedTarget):
                continue  # its models are known only at run time; unpriced calls are rejected then
            unknown[str(model) if isinstance(model, str) else target.provider] = None
    for metric in loaded.configuration.evaluation.judges.values():
        llm = loaded.configuration.judge_of(metric)
        if llm is not None:
            from tasks.providers import billing_provider  # noqa: PLC0415 - brings httpx

            if prices.find(*billing_provider(llm)) is None:
                unknown[llm.model] = None
    return tuple(unknown)


def check_priced(loaded: "Loaded", target: Target, prices: PriceTable) -> str | None:
    """Return a warning if prices are unknown; ``None`` if all are known or irrelevant.

    Raises:
        ConfigurationError: under ``budget.max_usd``, which an unknown price would make worthless.
    """
    configuration = loaded.configuration
    budget = configuration.budget
    unknown = unpriced(loaded, target, prices)
    if not unknown:
        return None
    names = ", ".join(f"`{name}`" for name in unknown)
    is_asked = configuration.api.kind in {*CHAT_KINDS, "agno"}
    if budget.max_usd is not None and not budget.allow_unknown_prices:
        example = "{input: 0.15, output: 0.6}" if is_asked else "{request: 0.002}"
        rule = f"needs the highest cost of every call, but it is unknown for {names}"
        fix = (
            f"Write `prices: {{{unknown[0]}: {example}}}` and, for a chat, a `max_tokens`; or "
            "`allow_unknown_prices: true` under `budget`."
        )
        raise ConfigurationError.of("budget.max_usd", rule, fix, value=f"{budget.max_usd:g}")
    if not is_asked and not configuration.evaluation.judges:
        return None  # most functions and endpoints charge nothing per call
    return (
        f"The price of {names} is unknown before a call: these calls count, and their dollars only if "
        "an answer reports them."
    )


_PLACEHOLDER = "offline"
"""Placeholder for every key when no external service is called."""


class _AnyName(dict[str, str]):
    """Environment with every variable set: to its real value, or to a placeholder."""

    def get(self, key: str, default: object = None, /) -> str:  # noqa: ARG002 - any name has a value
        """Return the value, or a placeholder."""
        return super().get(key) or _PLACEHOLDER


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """External resources of one run."""

    secrets: Secrets
    prices: PriceTable
    mock_url: str | None = None
    """Address of the server that replaces all chat models; ``None`` to call the real ones."""

    @classmethod
    def of(cls, configuration: Configuration, *, mock_url: str | None = None) -> Self:
        """Return the environment of a configuration, checked before any paid call.

        From here on, no log or error of this process reveals its secrets.

        Raises:
            ConfigurationError: a variable is not set, or the environment names an unusable proxy
                or certificate.
        """
        check_network_environment()
        prices = prices_of(configuration)
        if mock_url is None:
            check_environment(configuration)
            environment = cls(secrets=Secrets(), prices=prices)
        else:
            journal_url(configuration)  # the call log is always the real one
            secrets = Secrets(_AnyName(_of_target(configuration)))
            environment = cls(secrets=secrets, prices=prices, mock_url=mock_url)
        hide(environment.redactor(configuration))
        return environment

    @classmethod
    def unchecked(cls, configuration: Configuration) -> Self:
        """Return the environment of a configuration whose keys may be unset, for validation."""
        environment = cls(secrets=Secrets(), prices=prices_of(configuration))
        hide(environment.redactor(configuration))
        return environment

    def redactor(self, configuration: Configuration) -> Redactor:
        """Return the redactor of this configuration's secrets."""
        if self.mock_url is not None:
            target_secrets = Secrets(_of_target(configuration))
            target = Redactor.from_configuration(configuration, target_secrets)
            return Redactor.of_journal(configuration).joined(target)
        return Redactor.from_configuration(configuration, self.secrets)


def _of_target(configuration: Configuration) -> dict[str, str]:
    """Return the variables of a target that is not mocked in an offline run."""
    if configuration.api.kind in {*CHAT_KINDS, "browserbase", "http"}:
        return {}
    names = target_secret_names(configuration)
    if (
        configuration.api.kind == "agno"
    ):  # the mock replaces its models, not the services behind its tools
        names = tuple(configuration.api.agent.secrets)
    return {name: value for name in names if (value := os.environ.get(name, "").strip())}
