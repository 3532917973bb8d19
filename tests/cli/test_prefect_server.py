"""A run needs Prefect's server: the one that is configured, or a temporary one."""

import fcntl
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tasks.prefect_support.temporary_server import (
    LOCK_FILE,
    ROOM,
    TemporaryServer,
    alone,
    full_disk,
)
from tests.cli.test_running import Session, calls, write_project


@pytest.mark.slow
def test_a_configured_server_that_is_not_there_is_named_without_its_password(here: Path):
    write_project(here)
    done = Session(here, "optimize", sleep_s=0, api_url="http://me:s3cr3t@127.0.0.1:9/api").end()
    assert done.code == 1
    assert "PREFECT_API_URL: must be the address of a running Prefect server" in done.err
    assert "http://127.0.0.1:9/api" in done.err
    assert "s3cr3t" not in done.err
    assert "Traceback" not in done.err
    assert "Unexpected error" not in done.err
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
    assert "Unexpected error" not in done.err
    assert calls(here) == []


def test_one_server_of_a_home_starts_at_a_time(tmp_path: Path):
    with (
        alone(tmp_path / "home"),
        (tmp_path / "home" / LOCK_FILE).open() as other,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (tmp_path / "home" / LOCK_FILE).open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.slow
def test_four_servers_that_begin_one_home_together_all_start(tmp_path: Path):
    from prefect import settings

    home = {settings.PREFECT_HOME: tmp_path / "home"}
    patience = {settings.PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS: 120}  # as of a run
    with settings.temporary_settings(updates={**home, **patience}):
        servers = [TemporaryServer() for _ in range(4)]
        try:
            for server in servers:
                server.wait()
            assert all(server.is_running for server in servers)
        finally:
            for server in servers:
                server.stop()


def test_a_full_disk_under_prefects_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from prefect.settings import PREFECT_HOME, temporary_settings

    free = ROOM - 1
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with temporary_settings(updates={PREFECT_HOME: tmp_path}):
        told = full_disk()
        free = ROOM
        assert full_disk() is None
    assert told is not None
    assert f"{tmp_path}, and the disk there is full: 16.0 MB are free" in told


@pytest.mark.slow
def test_a_server_that_cannot_write_its_database_ends_in_a_sentence(here: Path, small_disk: Path):
    write_project(here)
    session = Session(here, "optimize", sleep_s=0, prefect_home=small_disk)
    done = session.end()
    assert done.code == 1
    assert "the disk there is full" in done.err
    assert "set PREFECT_HOME to a folder elsewhere" in done.err
    assert "Unexpected error" not in done.err
    assert calls(here) == []
