"""Checks of the contract suites, each with the message of its failure."""

import unittest
from typing import NoReturn

from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

SECRET = "canary-4f9a1c77d2e84b06"  # noqa: S105 - made up, to be looked for
"""Key that a plugin under test is given, and must show nowhere."""

HOSTILE_TEXTS: tuple[str, ...] = (
    "",
    " \n\t",
    "\x00\x1b[31m",
    "é \u2028 \u202e 🦄",
    "{input} {{x}} %s ${HOME} `id` <script>alert(1)</script> ' OR 1=1 --",
    "x" * 200_000,
)
"""Texts that a plugin may meet in a case or an answer: empty, huge, meant to inject."""


def brief(value: object) -> str:
    """Return the beginning of a value as a message shows it."""
    return one_line(ascii(value), 60, redacted_text)


def require(condition: object, message: str) -> None:
    """Fail a test unless the condition holds.

    Raises:
        AssertionError: it does not; its message is ``message``.
    """
    if not condition:
        raise AssertionError(message)


def skip(reason: str) -> NoReturn:
    """Skip a test; pytest and unittest both show the reason.

    Raises:
        SkipTest: always.
    """
    raise unittest.SkipTest(reason)
