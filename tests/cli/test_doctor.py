"""``doctor``: what it finds on a sound machine, and what it says about an unsound one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from convergence import doctor
from tests.support.commands import Runner
from tests.support.http_server import LoopbackServer, error_answer


@pytest.fixture
def health() -> Iterator[tuple[str, list[int]]]:
    """A server's API, and the status that it answers with."""
    status = [200]
    with LoopbackServer(lambda _: error_answer(status[0])) as server:
        yield f"{server.url}/api", status


def test_sound_machine_passes(here: Path, cli: Runner):
    done = cli("doctor", "--json")
    assert done.code == 0, done.out
    assert done.json["ok"] is True
    checks = {row["check"] for row in done.json["findings"]}
    assert checks == {"sqlite", "store", "prefect"}


def test_prefect_server_that_is_ill_or_gone_fails(
    health: tuple[str, list[int]], here: Path, cli: Runner
):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    url, status = health
    status[0] = 503
    with temporary_settings(updates={PREFECT_API_URL: url}):
        done = cli("doctor")
    assert done.code == 1
    assert "503" in done.out
    assert "prefect server start" in done.out


def test_store_on_a_network_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "_file_system", lambda path: "nfs4")
    assert doctor._store(tmp_path).level == "failed"
