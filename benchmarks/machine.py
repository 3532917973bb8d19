"""What a benchmark ran on and with which options, and processes measured by the operating system."""

import argparse
import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One finished process."""

    wall_s: float
    cpu_s: float
    """User and system time of the process itself and of children it waited for."""
    output: str


def measure(command: list[str], *, cwd: Path | None = None, env: dict[str, str]) -> Measured:
    """Run a command to its end.

    Raises:
        RuntimeError: it failed.
    """
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - began
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{output}")
    return Measured(wall_s=wall_s, cpu_s=usage.ru_utime + usage.ru_stime, output=output)


def options(description: str | None, **defaults: object) -> argparse.Namespace:
    """Read the command line: an option for each default, of its type; several values for a tuple."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, tuple):
            parser.add_argument(flag, nargs="+", type=type(default[0]), default=default)
        else:
            parser.add_argument(flag, type=type(default), default=default)
    return parser.parse_args()


def describe_machine() -> str:
    """Return one line about the machine."""
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()}"


def cpu_of(pid: int) -> float:
    """Return the CPU seconds, user and system, of a living process and all its living descendants."""
    ticks = os.sysconf("SC_CLK_TCK")
    total, open_pids = 0.0, [pid]
    while open_pids:
        one = open_pids.pop()
        try:
            stat = Path(f"/proc/{one}/stat").read_text("ascii").rpartition(")")[2].split()
            children = Path(f"/proc/{one}/task/{one}/children").read_text("ascii").split()
        except FileNotFoundError:  # it has ended meanwhile
            continue
        total += (int(stat[11]) + int(stat[12])) / ticks
        open_pids += [int(child) for child in children]
    return total
