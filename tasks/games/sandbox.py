"""Limited process for programs: no file, network, process or signal.

A program is Python source and a function of it to be called with JSON values. What comes back is what it
returned, or in words why it returned nothing. The process is described in ``child.py``; without its
filter of system calls nothing is run at all. Limits hold for untrusted programs, and for an owner's
check that meets a hostile answer.

Linux on x86_64 and aarch64; elsewhere every execution is refused (``SandboxUnavailableError``).
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
"""How a program ended. ``error``: it raised. All but these two are the limits' doing."""
_ENDINGS: Final = frozenset(get_args(Ending)) - {"timeout"}
"""Those that a process reports of itself."""
MOST_REQUEST: Final = 1_000_000
"""Characters of program and arguments together."""
MOST_REPORT: Final = 1_000_000
"""Bytes that are read of a process; more end it."""
MOST_REASON: Final = 200


class SandboxUnavailableError(ConvergenceError):
    """Programs cannot be run safely on this machine, so none is run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How one program ended."""

    ending: Ending
    reason: str = ""
    """Why it returned nothing; empty for ``ok``."""
    value: Json = None
    """What its function returned, as JSON; ``None`` where none was called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """Runs programs in limited processes, one process each; plays the role that executes."""

    cpu_s: int = 2
    """Seconds of CPU, at least 1."""
    wall_s: float = 10.0
    """Seconds from start to end, those of a busy machine included."""
    memory_mb: int = 256
    """Address space, the interpreter's included, at least 64."""

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:  # noqa: ARG002 - the port's signature
        """Run a program and return its report as JSON.

        Raises:
            SandboxUnavailableError: no program can be run on this machine.
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
            function: to be called; ``None`` means the program alone runs.
            arguments: of the function.

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
    """Return why no program can be run on this machine; empty: programs can."""
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
    """Wait for a process, end it where it goes too far, and return how it ended."""
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
    """Return what a process writes until it ends, and which limit it met; ``None`` means none."""
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
    """Return how a process ended, by its report or by the signal that ended it."""
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
    """Return a report of the known form; a program may have written anything in its place."""
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
