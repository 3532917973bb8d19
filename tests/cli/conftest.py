"""Fixtures of the command line's tests: commands in this process and in child processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from convergence.__main__ import run
from tests.support.commands import Done, Runner

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Runner:
    """Run a command in this process."""

    def call(*arguments: object) -> Done:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, with output as wide as a terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.fixture
def python() -> Runner:
    """Run Python code in a child process."""

    def call(code: str, *arguments: object, cwd: Path | None = None, **env: str) -> Done:
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return call
