"""Identity of a process beyond its id, which systems use again."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMark:
    """Identity of a process among all that ever had its number."""

    pid: int
    host: str
    machine: str
    """Boot and pid namespace, within which a pid means something; empty: not known."""
    started: str
    """Clock ticks from boot to the process's start; empty: not known."""


def this_process() -> ProcessMark:
    """Return the mark of this process."""
    return process(os.getpid())


def process(pid: int) -> ProcessMark:
    """Return the mark of the process that has this number now, on this machine."""
    return ProcessMark(
        pid=pid, host=socket.gethostname(), machine=_machine(), started=_started(pid)
    )


def is_dead(mark: ProcessMark) -> bool:
    """Return whether that process is known to have ended; ``False`` when that cannot be known."""
    if not mark.machine or mark.machine != _machine():
        return False
    state, started = _stat(mark.pid)
    return state in ("", "Z", "X") or started != mark.started


def is_local_process(mark: ProcessMark) -> bool:
    """Return whether that process lives on this machine, so that its number means it."""
    return bool(mark.machine) and mark.machine == _machine() and not is_dead(mark)


def _machine() -> str:
    """Return boot id and pid namespace, or nothing where the system has none."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    return _stat(pid)[1]


def _stat(pid: int) -> tuple[str, str]:
    """Return (state, start) of a process, two empty texts if there is none."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return "", ""
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    return fields[0], fields[19]
