"""Keyboard of a chat: lines and single keys of a terminal, or the lines of a pipe."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import IO, Protocol

_MOST_PASTED = 4_096
"""Bytes that are read at once."""


class Keyboard(Protocol):
    """What a person types."""

    is_terminal: bool

    def line(self, prompt: str) -> str | None:
        """Return the next line without its end; ``None``: there is none."""

    def choice(self, prompt: str, keys: str) -> str | None:
        """Return one of some keys; ``None``: none of them was chosen."""


class PipedLines:
    """Lines of a pipe or file. A line that is no choice stays the next line."""

    is_terminal = False

    def __init__(self, lines: IO[str]) -> None:
        self._lines = lines
        self._kept: str | None = None

    def line(self, prompt: str) -> str | None:  # noqa: ARG002 - nobody reads one
        """Return the next line; see ``Keyboard``."""
        if self._kept is not None:
            kept, self._kept = self._kept, None
            return kept
        found = self._lines.readline()
        return found.rstrip("\r\n") if found else None

    def choice(self, prompt: str, keys: str) -> str | None:
        """Return the next line where it is one of the keys; an empty one is skipped."""
        found = self.line(prompt)
        if found is None or not found.strip():
            return None
        if found.strip() in keys and len(found.strip()) == 1:
            return found.strip()
        self._kept = found
        return None


class TerminalKeyboard:
    """A terminal, whose keys count without Enter."""

    is_terminal = True

    def __init__(self) -> None:
        with contextlib.suppress(ImportError):
            import readline  # noqa: PLC0415 - lines can be edited and called back

            self._readline = readline
        self._begun = ""

    def line(self, prompt: str) -> str | None:
        """Return the next line; see ``Keyboard``."""
        begun, self._begun = self._begun, ""
        readline = getattr(self, "_readline", None)
        if begun and readline is not None:
            readline.set_startup_hook(lambda: readline.insert_text(begun))
        try:
            return input(prompt)
        except EOFError:
            sys.stdout.write("\n")
            return None
        finally:
            if begun and readline is not None:
                readline.set_startup_hook()

    def choice(self, prompt: str, keys: str) -> str | None:
        """Return one of some keys, pressed without Enter; another key begins the next line."""
        with _single_keys() as has_keys:
            sys.stdout.write(prompt)
            sys.stdout.flush()
            # Past Python's buffer, which `input` does not look into; a pasted text comes whole.
            found = (
                os.read(sys.stdin.fileno(), _MOST_PASTED).decode("utf-8", "ignore")
                if has_keys
                else sys.stdin.readline().strip()
            )
        sys.stdout.write("\n" if has_keys else "")
        if found in keys and len(found) == 1:
            return found
        begun = found.splitlines()[0] if found.strip() else ""
        self._begun = begun if begun.isprintable() else ""
        return None


@contextlib.contextmanager
def _single_keys() -> Iterator[bool]:
    """Within, a terminal gives each key at once; yield whether it can."""
    try:
        import termios  # noqa: PLC0415 - not on every system
        import tty  # noqa: PLC0415 - as above
    except ImportError:
        yield False
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    try:
        tty.setcbreak(number, termios.TCSADRAIN)  # what was typed ahead is kept
        yield True
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def keyboard() -> Keyboard:
    """Return the keyboard of standard input."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        return TerminalKeyboard()
    return PipedLines(sys.stdin)
