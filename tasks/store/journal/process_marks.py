"""Identity of a process beyond its id, which operating systems reuse."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMark:
    """Unique identity of a process, also among earlier ones with its id."""

    pid: int
    host: str
    machine: str
    """Boot id and pid namespace in which the pid is valid. Empty if unknown."""
    started: str
    """Start of the process in clock ticks since boot. Empty if unknown."""


def this_process() -> ProcessMark:
    """Return the mark of this process."""
    return process(os.getpid())


def process(pid: int) -> ProcessMark:
    """Return the mark of the process with this pid on this machine."""
    return ProcessMark(
        pid=pid, host=socket.gethostname(), machine=_machine(), started=_stat(pid)[1]
    )


def is_dead(mark: ProcessMark) -> bool:
    """Return whether the process is known to have ended; ``False`` if that is unknown."""
    if not mark.machine or mark.machine != _machine():
        return False
    state, started = _stat(mark.pid)
    return state in ("", "Z", "X") or started != mark.started


def is_local_process(mark: ProcessMark) -> bool:
    """Return whether the process lives on this machine, so that its pid is valid here."""
    return bool(mark.machine) and mark.machine == _machine() and not is_dead(mark)


def _machine() -> str:
    """Return boot id and pid namespace; empty if the system lacks them."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, str]:
    """Return (state, start) of a process, both empty if there is none."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return "", ""
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return fields[0], fields[19]
