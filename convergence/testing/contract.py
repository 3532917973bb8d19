"""Base classes of the contract suites: options and tests of any plugin."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from convergence.testing.requirements import require, skip
from convergence.testing.services import HostileAnswer
from convergence_core.errors import ConfigurationError
from convergence_core.records import Json

_UNKNOWN = "no_such_option_of_anyone"


class PluginContract:
    """Tests of any plugin; a suite itself is no test, its subclasses in packages are."""

    __test__ = False

    plugin: ClassVar[str]
    """Name of the entry point in the suite's group."""
    options: ClassVar[Mapping[str, Json]] = {}
    """``plugin_options`` with which it works."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__test__ = bool(vars(cls).get("__test__", True))

    def test_an_unknown_option_is_refused(self) -> None:
        """A misspelt option is a ``ConfigurationError``, never ignored."""
        try:
            self._made({**self.options, _UNKNOWN: 1})
        except ConfigurationError as error:
            message = str(error)
            require(_UNKNOWN in message, f"the error does not name the key: {message}")
            return
        raise AssertionError("an option that nothing reads was taken without a word")

    def _made(self, options: Mapping[str, Json] | None = None) -> Any:
        """Return what a run makes of the plugin; ``None``: with ``options`` of the class."""
        raise NotImplementedError


class ServiceContract(PluginContract):
    """Tests of a plugin that asks a service."""

    __test__ = False

    timeout_s: ClassVar[float] = 30.0
    """Longest duration of one call, in seconds."""

    def answering(
        self,
        answer: HostileAnswer,  # noqa: ARG002 - for who overrides it
    ) -> AbstractContextManager[Mapping[str, Json]]:
        """Let the service behind the plugin give one answer, and return the options that reach it.

        Override it with a ``LoopbackService``; without it hostile answers are not tested.

        Raises:
            SkipTest: it is not overridden.
        """
        skip("no service behind it: override `answering` to test hostile answers")
