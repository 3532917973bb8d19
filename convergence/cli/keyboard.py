"""Chat input: lines and single keys of a terminal, or the lines of a pipe."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import IO, TypeAlias

_MOST_PASTED = 4_096


class PipedLines:
    """Lines of a pipe or file. A line that is no choice becomes the next line."""

    is_terminal = False

    def __init__(self, lines: IO[str]) -> None:
        self._lines = lines
        self._kept: str | None = None

    def line(self, prompt: str) -> str | None:  # noqa: ARG002 - a pipe shows no prompt
        """Return the next line without its end, or ``None`` at the end of input."""
        if self._kept is not None:
            kept, self._kept = self._kept, None
            return kept
        line = self._lines.readline()
        return line.rstrip("\r\n") if line else None

    def choice(self, prompt: str, keys: str) -> str | None:
        """Return the next line if it is one of ``keys``, else ``None``; skips an empty line."""
        line = self.line(prompt)
        if line is None or not line.strip():
            return None
        if line.strip() in keys and len(line.strip()) == 1:
            return line.strip()
        self._kept = line
        return None


class TerminalKeyboard:
    """A terminal that reads keys without Enter."""

    is_terminal = True

    def __init__(self) -> None:
        with contextlib.suppress(ImportError):
            import readline  # noqa: PLC0415 - editing and history of lines

            self._readline = readline
        self._start = ""

    def line(self, prompt: str) -> str | None:
        """Return the next line without its end, or ``None`` at the end of input."""
        start, self._start = self._start, ""
        readline = getattr(self, "_readline", None)
        if start and readline is not None:
            readline.set_startup_hook(lambda: readline.insert_text(start))
        try:
            return input(prompt)
        except EOFError:
            sys.stdout.write("\n")
            return None
        finally:
            if start and readline is not None:
                readline.set_startup_hook()

    def choice(self, prompt: str, keys: str) -> str | None:
        """Return one of ``keys``, pressed without Enter, else ``None``; another key starts the next line."""
        with _single_keys() as has_keys:
            sys.stdout.write(prompt)
            sys.stdout.flush()
            # This bypasses Python's buffer, which `input` does not read. A pasted text arrives
            # whole.
            typed = (
                os.read(sys.stdin.fileno(), _MOST_PASTED).decode("utf-8", "ignore")
                if has_keys
                else sys.stdin.readline().strip()
            )
        sys.stdout.write("\n" if has_keys else "")
        if typed in keys and len(typed) == 1:
            return typed
        first = typed.splitlines()[0] if typed.strip() else ""
        self._start = first if first.isprintable() else ""
        return None


@contextlib.contextmanager
def _single_keys() -> Iterator[bool]:
    """Let the terminal deliver each key immediately within the block; yield whether it can."""
    try:
        import termios  # noqa: PLC0415 - not on every system
        import tty  # noqa: PLC0415 - as above
    except ImportError:
        yield False
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    try:
        tty.setcbreak(number, termios.TCSADRAIN)  # keeps keys typed ahead
        yield True
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


Keyboard: TypeAlias = PipedLines | TerminalKeyboard


def keyboard() -> Keyboard:
    """Return the keyboard of standard input."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        return TerminalKeyboard()
    return PipedLines(sys.stdin)
