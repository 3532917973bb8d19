"""Environment of a run: secrets, prices, and the mock server."""

import os
from dataclasses import dataclass
from typing import Self

from convergence_core.budget.prices import PriceTable
from convergence_core.config import Configuration
from convergence_core.config.api import CHAT_KINDS
from tasks.http.authentication import check_environment
from tasks.http.environment import check_network_environment
from tasks.inputs.prices import prices_of
from tasks.secrets.process_redaction import hide
from tasks.secrets.redaction import Redactor, Secrets, journal_url, target_secret_names

_PLACEHOLDER = "offline"
"""Placeholder for every key when no external service is called."""


class _AnyName(dict[str, str]):
    """Environment with every variable set: to its real value, or to a placeholder."""

    def get(self, key: str, default: object = None, /) -> str:  # noqa: ARG002 - whatever is asked
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
            journal_url(configuration)  # the journal is always the real one
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
    """Return the variables of a target that runs for real in an offline run."""
    if configuration.api.kind in {*CHAT_KINDS, "browserbase", "http"}:
        return {}
    names = target_secret_names(configuration)
    if (
        configuration.api.kind == "agno"
    ):  # the mock replaces its models, not the services behind its tools
        names = tuple(configuration.api.agent.secrets)
    return {name: value for name in names if (value := os.environ.get(name, "").strip())}
