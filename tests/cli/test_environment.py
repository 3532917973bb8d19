"""What the environment of our processes makes of Prefect's server."""

import os
from pathlib import Path

import pytest

from tests.support.commands import Runner

SERVER = """
from prefect.logging import get_logger
from prefect.logging.configuration import setup_logging

setup_logging()
try:
    raise OSError("stopped amid a batch")
except OSError:
    get_logger("prefect.server.services.task_run_recorder").exception("of the server")
"""
STARTER = """
import subprocess, sys
from tasks.prefect_support.settings import prepare

prepare(quiet={quiet})
subprocess.run([sys.executable, "-c", {server!r}], check=True)
"""


@pytest.fixture(autouse=True)
def _no_settings_of_prefect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("quiet", "level", "heard"), [(True, None, False), (False, None, True), (True, "ERROR", True)]
)
@pytest.mark.slow
def test_a_server_of_a_quiet_run_writes_no_traceback_unless_it_is_asked_to(
    quiet: bool, level: str | None, heard: bool, python: Runner
):
    chosen = {} if level is None else {"PREFECT_SERVER_LOGGING_LEVEL": level}
    done = python(STARTER.format(quiet=quiet, server=SERVER), **chosen)
    assert done.code == 0, done.err
    assert ("stopped amid a batch" in done.err) is heard
    if not heard:
        assert done.err == ""
