"""Child processes that a test may kill."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def start_child(module: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start ``python -m tests.…``; its standard output is a pipe of lines."""
    return subprocess.Popen(
        [*options.pop("prefix", ()), sys.executable, "-m", module, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        **options,
    )


def run_python(
    *arguments: object, cwd: Path = ROOT, check: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python until it exits, with additional environment variables."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=check,
    )


def run_child(module: str, *arguments: object, **options: Any) -> list[str]:
    """Run a child until it exits and return its output lines."""
    with start_child(module, *arguments, **options) as child:
        output, _ = child.communicate()
    assert child.returncode == 0, output
    return output.splitlines()
