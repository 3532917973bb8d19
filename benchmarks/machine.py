"""Machine, options and operating-system measurements of a benchmark."""

import argparse
import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements of one finished process."""

    wall_s: float
    cpu_s: float
    """User and system seconds of the process and the children it waited for."""
    output: str


def measure(command: list[str], *, cwd: Path | None = None, env: dict[str, str]) -> Measured:
    """Run a command until it exits.

    Raises:
        RuntimeError: If it fails.
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
    """Parse the command line: one option per default, with its type. A tuple takes several values."""
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
    """Describe the machine in one line."""
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()}"


def cpu_of(pid: int) -> float:
    """Return the user and system CPU seconds of a live process and its live descendants."""
    ticks = os.sysconf("SC_CLK_TCK")
    total, open_pids = 0.0, [pid]
    while open_pids:
        one = open_pids.pop()
        try:
            stat = Path(f"/proc/{one}/stat").read_text("ascii").rpartition(")")[2].split()
            children = Path(f"/proc/{one}/task/{one}/children").read_text("ascii").split()
        except FileNotFoundError:  # the process has exited since
            continue
        total += (int(stat[11]) + int(stat[12])) / ticks
        open_pids += [int(child) for child in children]
    return total
