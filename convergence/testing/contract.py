"""Base class of the contract suites, and their checks."""

from collections.abc import Mapping
from typing import Any, ClassVar

from convergence_core.errors import ConfigurationError
from convergence_core.records import Json
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

_UNKNOWN = "no_such_option_of_anyone"
SECRET = "canary-4f9a1c77d2e84b06"  # noqa: S105 - a made-up value to search for
"""Key of the plugin under test; no output may contain it."""

HOSTILE_TEXTS: tuple[str, ...] = (
    "",
    " \n\t",
    "\x00\x1b[31m",
    "é \u2028 \u202e 🦄",
    "{input} {{x}} %s ${HOME} `id` <script>alert(1)</script> ' OR 1=1 --",
    "x" * 200_000,
)
"""Hostile texts for a case or an answer: empty, huge, or with injected instructions."""


def brief(value: object) -> str:
    """Return the start of a value, for a message."""
    return one_line(ascii(value), 60, redacted_text)


def require(condition: object, message: str) -> None:
    """Fail a test unless the condition holds.

    Raises:
        AssertionError: the condition does not hold.
    """
    if not condition:
        raise AssertionError(message)


class PluginContract:
    """Tests of any plugin. Pytest collects a package's subclasses, not the suite itself."""

    __test__ = False

    plugin: ClassVar[str]
    """Name of the entry point in the suite's group."""
    options: ClassVar[Mapping[str, Json]] = {}
    """Valid ``plugin_options``."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__test__ = bool(vars(cls).get("__test__", True))

    def test_an_unknown_option_is_refused(self) -> None:
        """A misspelt option raises a ``ConfigurationError`` and is never ignored."""
        try:
            self._made({**self.options, _UNKNOWN: 1})
        except ConfigurationError as error:
            message = str(error)
            require(_UNKNOWN in message, f"the error does not name the key: {message}")
            return
        raise AssertionError("an unknown option was accepted silently")

    def _made(self, options: Mapping[str, Json] | None = None) -> Any:
        """Return the object that a run builds; ``options`` ``None`` means those of the class."""
        raise NotImplementedError
