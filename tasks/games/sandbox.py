"""Limited process for programs: no file, network, process or signal.

A program is Python source and one of its functions to call with JSON values. The result is the
returned value, or the reason why there is none. ``child.py`` describes the process; without its
filter of system calls no program runs. The limits hold for untrusted programs, and for a user's
check that gets a hostile answer.

Linux on x86_64 and aarch64; elsewhere every execution raises ``SandboxUnavailableError``.
"""

import contextlib
import functools
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np

from convergence_core.errors import ConvergenceError
from convergence_core.ports import Ask
from convergence_core.records import Json, canonical_json, fields_of

CHILD: Final = Path(__file__).with_name("child.py")
Ending = Literal["ok", "error", "timeout", "memory", "output", "forbidden", "crashed"]
"""How a program ended: ``ok``, ``error`` if it raised, otherwise the limit that stopped it."""
_ENDINGS: Final = frozenset(get_args(Ending)) - {"timeout"}
"""Endings that a process reports itself."""
MOST_REQUEST: Final = 1_000_000
"""Maximum characters of program and arguments together."""
MOST_REPORT: Final = 1_000_000
"""Maximum bytes read from a process; more end it."""
MOST_REASON: Final = 200


class SandboxUnavailableError(ConvergenceError):
    """This machine cannot run programs safely, so none runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Outcome of one program."""

    ending: Ending
    reason: str = ""
    """Why it returned no value; empty for ``ok``."""
    value: Json = None
    """Value that its function returned, as JSON; ``None`` if no function was called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """Runs programs in limited processes, one process each; plays the role that executes."""

    cpu_s: int = 2
    """Seconds of CPU, at least 1."""
    wall_s: float = 10.0
    """Seconds from start to end, including waits on a busy machine."""
    memory_mb: int = 256
    """Address space in megabytes, including the interpreter's, at least 64."""

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:  # noqa: ARG002 - the port's signature
        """Run a program and return its report as JSON.

        Raises:
            SandboxUnavailableError: this machine cannot run programs.
        """
        task = json.loads(ask.text)
        outcome = self.run(task["program"], function=task["function"], arguments=task["arguments"])
        return canonical_json(fields_of(outcome, "ending", "reason", "value"))

    def run(
        self, program: str, *, function: str | None = None, arguments: Sequence[Json] = ()
    ) -> Execution:
        """Run a program and call one of its functions.

        Args:
            program: Python source. It may import the modules that ``child.py`` lists.
            function: Name of the function; ``None`` runs the program alone.
            arguments: Arguments of the function.

        Raises:
            SandboxUnavailableError: the machine has no filter of system calls.
            ValueError: program and arguments are too long.
        """
        request = json.dumps(
            {
                "program": program,
                "function": function,
                "arguments": list(arguments),
                "cpu_s": self.cpu_s,
                "memory_bytes": self.memory_mb * 2**20,
            }
        )
        if len(request) > MOST_REQUEST:
            raise ValueError(
                f"a program and its arguments must have {MOST_REQUEST:,} characters at most, but "
                f"got {len(request):,}"
            )
        if why := why_unavailable():
            raise SandboxUnavailableError(
                f"Programs must run behind a filter of system calls, but {why}. Use Linux on x86_64 or "
                "aarch64 with seccomp, or games that run no programs."
            )
        return _executed(request, self.wall_s)


@functools.cache
def why_unavailable() -> str:
    """Return why this machine cannot run programs; empty if it can."""
    request = {"program": "", "function": None, "cpu_s": 10, "memory_bytes": 2**28}
    report = _executed(json.dumps(request), 60.0)
    return "" if report.ending == "ok" else report.reason


def _executed(request: str, wall_s: float) -> Execution:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as standard_input:
        standard_input.write(request.encode())
        standard_input.seek(0)
        child = subprocess.Popen(  # noqa: S603 - this interpreter, on a script of ours
            [sys.executable, "-S", "-s", "-B", "-X", "utf8", "-W", "ignore", str(CHILD)],
            stdin=standard_input,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={"PYTHONHASHSEED": "0"},
            start_new_session=True,
        )
        return _ended(child, time.monotonic() + wall_s)


def _ended(child: "subprocess.Popen[bytes]", deadline: float) -> Execution:
    """Wait for a process, kill it if it exceeds a limit, and return its outcome."""
    assert child.stdout is not None  # noqa: S101 - a pipe, as it was started
    stopped: Ending | None = None
    try:
        data, stopped = _read(child.stdout.fileno(), deadline)
    finally:
        if stopped is not None or sys.exc_info()[0] is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        child.stdout.close()
        child.wait()
    if stopped == "timeout":
        return Execution(ending="timeout", reason="it ran out of time")
    if stopped == "output":
        return Execution(ending="output", reason="it wrote without end")
    return _execution_of(data, child.returncode)


def _read(stream: int, deadline: float) -> tuple[bytes, Ending | None]:
    """Return a process's output and the limit that it exceeded; ``None`` if it exceeded none."""
    data = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                return bytes(data), "timeout"
            piece = os.read(stream, 65_536)
            if not piece:
                return bytes(data), None
            data += piece
            if len(data) > MOST_REPORT:
                return bytes(data), "output"


def _execution_of(data: bytes, code: int) -> Execution:
    """Return the outcome of a process, from its report or from the signal that ended it."""
    if code == -signal.SIGSYS:
        return Execution(ending="forbidden", reason="it made a system call that is not allowed")
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return Execution(ending="timeout", reason="it used up its CPU time")
    if code < 0:
        name = signal.Signals(-code).name
        return Execution(ending="crashed", reason=f"it was ended by {name}")
    report = _report(data)
    if report is None:
        return Execution(ending="crashed", reason="it ended without a report")
    return Execution(
        ending=report["status"],
        reason=report.get("reason", ""),
        value=report.get("value"),
    )


def _report(data: bytes) -> dict[str, Any] | None:
    """Return a report of the known form; a program may have written anything instead."""
    try:
        report = json.loads(data)
        canonical_json(report)  # no NaN, nothing endless or nested too deep to be written again
    except (ValueError, RecursionError):
        return None
    if not isinstance(report, dict) or report.get("status") not in _ENDINGS:
        return None
    reason = report.get("reason", "")
    if not isinstance(reason, str) or len(reason) > MOST_REASON:
        return None
    return report
