"""Environment of a run: secrets, prices, and the server that answers."""

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
"""What is sent in place of every key when nobody outside is asked."""


class _AnyName(dict[str, str]):
    """An environment in which every variable is set: those it holds, the others to nothing worth hiding."""

    def get(self, key: str, default: object = None, /) -> str:  # noqa: ARG002 - whatever is asked
        """Return the same for every other name."""
        return super().get(key) or _PLACEHOLDER


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What one run reaches outside of its process."""

    secrets: Secrets
    prices: PriceTable
    mock_url: str | None = None
    """Server that answers in place of all chat models; ``None``: the real ones are asked."""

    @classmethod
    def of(cls, configuration: Configuration, *, mock_url: str | None = None) -> Self:
        """Return the environment of a configuration, checked before anything is paid.

        From here on, nothing that this process logs or fails with shows its secrets.

        Raises:
            ConfigurationError: a variable that it names is not set, or the environment names a proxy or
                certificates that cannot be used.
        """
        check_network_environment()
        prices = prices_of(configuration)
        if mock_url is None:
            check_environment(configuration)
            environment = cls(secrets=Secrets(), prices=prices)
        else:
            journal_url(configuration)  # the journal is the real one
            secrets = Secrets(_AnyName(_of_target(configuration)))
            environment = cls(secrets=secrets, prices=prices, mock_url=mock_url)
        hide(environment.redactor(configuration))
        return environment

    @classmethod
    def unchecked(cls, configuration: Configuration) -> Self:
        """Return the environment of a configuration whose keys may not be set; for validation."""
        environment = cls(secrets=Secrets(), prices=prices_of(configuration))
        hide(environment.redactor(configuration))
        return environment

    def redactor(self, configuration: Configuration) -> Redactor:
        """Return what keeps this configuration's secrets out of every text."""
        if self.mock_url is not None:
            own = Secrets(_of_target(configuration))
            target = Redactor.from_configuration(configuration, own)
            return Redactor.of_journal(configuration).joined(target)
        return Redactor.from_configuration(configuration, self.secrets)


def _of_target(configuration: Configuration) -> dict[str, str]:
    """Return the variables of a target that is asked as it is though the run is offline."""
    if configuration.api.kind in {*CHAT_KINDS, "browserbase", "http"}:
        return {}
    names = target_secret_names(configuration)
    if configuration.api.kind == "agno":  # its models are not asked, what its tools speak to is
        names = tuple(configuration.api.agent.secrets)
    return {name: value for name in names if (value := os.environ.get(name, "").strip())}
