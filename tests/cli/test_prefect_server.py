"""A run needs Prefect's server: the one that is configured, or a temporary one."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_running import ROOT, Session, calls, write_project


def test_a_configured_server_that_is_not_there_is_named_without_its_password(here: Path):
    write_project(here)
    done = Session(here, "optimize", sleep_s=0, api_url="http://me:s3cr3t@127.0.0.1:9/api").end()
    assert done.code == 1
    assert "PREFECT_API_URL: must be the address of a running Prefect server" in done.err
    assert "http://127.0.0.1:9/api" in done.err
    assert "s3cr3t" not in done.err
    assert "Traceback" not in done.err
    assert "not foreseen" not in done.err
    assert calls(here) == []


@pytest.mark.slow
def test_a_temporary_server_that_ends_at_its_start_is_told(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    write_project(here)
    nowhere = f"sqlite+aiosqlite:///{here}/no-such-folder/prefect.db"
    monkeypatch.setenv("PREFECT_API_DATABASE_CONNECTION_URL", nowhere)
    done = Session(here, "optimize", sleep_s=0).end()
    assert done.code == 1
    assert "temporary server ended with exit code" in done.err
    assert "`prefect server start`" in done.err
    assert "not foreseen" not in done.err
    assert calls(here) == []


def test_a_run_begins_without_what_takes_seconds_to_import():
    """The server's code, and what few runs need, each the better part of a second and more."""
    code = (
        "import flows.optimize, tasks.opening, sys;"
        "heavy = {'prefect.server.api.server', 'scipy.stats', 'datasketch', 'torch'};"
        "sys.exit(', '.join(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == ""
