"""``doctor``: what it finds on a sound machine, and what it says about an unsound one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from convergence import doctor
from convergence.doctor import examine, wal_is_sound
from tests.support.commands import Runner
from tests.support.http_server import LoopbackServer, error_answer
from tests.support.plugin_packages import install


@pytest.mark.parametrize(
    ("version", "sound"),
    [("3.40.1", False), ("3.44.5", False), ("3.44.6", True), ("3.45.3", False), ("3.50.6", False),
     ("3.50.7", True), ("3.51.2", False), ("3.51.3", True), ("3.52.0", True), ("3.54.1", True),
     ("4.0", True)],
)  # fmt: skip
def test_sqlite_releases_that_lose_commits_are_known(version: str, sound: bool):
    assert wal_is_sound(version) is sound


@pytest.fixture
def health() -> Iterator[tuple[str, list[int]]]:
    """A server's API, and the status that it answers with."""
    status = [200]
    with LoopbackServer(lambda _: error_answer(status[0])) as server:
        yield f"{server.url}/api", status


def finding(check: str, findings: list[doctor.Finding]) -> doctor.Finding:
    return next(found for found in findings if found.check == check)


def test_sound_machine_passes(here: Path, cli: Runner, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    done = cli("doctor", "--json")
    assert done.code == 0, done.out
    assert done.json["ok"] is True
    assert {
        "python",
        "packages",
        "own packages",
        "sqlite",
        "store",
        "prefect",
        "time zone",
        "extras",
        "plugins",
    } <= {row["check"] for row in done.json["findings"]}


def test_prefect_server_that_answers_is_found(
    health: tuple[str, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    url, _ = health
    monkeypatch.setenv("PREFECT_API_URL", url)
    found = finding("prefect", examine(store=tmp_path, config=None))
    assert found.level == "ok"
    assert url in found.found


def test_prefect_server_that_is_ill_or_gone_fails(
    health: tuple[str, list[int]], here: Path, cli: Runner, monkeypatch: pytest.MonkeyPatch
):
    url, status = health
    status[0] = 503
    monkeypatch.setenv("PREFECT_API_URL", url)
    done = cli("doctor")
    assert done.code == 1
    assert "status 503" in done.out
    assert "prefect server start" in done.out


def test_store_that_cannot_be_written_fails(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    found = list(doctor._store(tmp_path / "file" / "store"))
    assert [one.level for one in found] == ["failed"]
    assert "storage.path" in found[0].fix


def test_store_on_a_network_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "_file_system", lambda path: "nfs4")
    assert [one.level for one in doctor._store(tmp_path)] == ["ok", "failed"]


def test_looking_leaves_no_file(tmp_path: Path):
    list(doctor._store(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_foreign_package_fails(monkeypatch: pytest.MonkeyPatch):
    from convergence_core.errors import ForeignPackageError

    def refuse(names: object) -> None:
        raise ForeignPackageError("package `tasks` must bear our marker")

    monkeypatch.setattr(doctor, "check_packages", refuse)
    assert doctor._ours().level == "failed"


@pytest.mark.parametrize(("found", "fails"), [("0.149.9", False), ("0.150.0", True)])
def test_a_fastapi_that_prefects_server_fails_with_is_told(
    found: str, fails: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(doctor, "version", lambda name: found)
    findings = list(doctor._packages())
    assert any(one.check == "fastapi" and one.level == "failed" for one in findings) is fails


def test_missing_package_fails(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "PACKAGES", ("pyyaml", "no-such-package"))
    found = next(iter(doctor._packages()))
    assert (found.level, found.found) == ("failed", "missing: no-such-package")


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the import path, where packages can be installed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_plugins_are_listed_and_those_that_do_not_load_are_told_with_the_reason(
    plugins: Path, monkeypatch: pytest.MonkeyPatch
):
    codes = {
        "sound": "print('hello')\ndef make(context): ...",
        "broken": "import no_such_module",
        "number": "make = 7",
        "leaves": "import os\nos._exit(3)",
    }
    for name, code in codes.items():
        install(
            plugins, f"acme-{name}", code, {"convergence.targets": {name: "make"}}, version="2.5"
        )
    found = {one.found.split("`")[1]: one for one in doctor._plugins()}
    assert found["sound"].level == "ok"
    assert found["sound"].found == "`sound` of convergence.targets, package acme-sound 2.5, loads"
    faults = {
        "broken": "ModuleNotFoundError: No module named 'no_such_module'",
        "number": "is no factory, but a int",
        "leaves": "ends the process that loads it (exit code 3)",
    }
    for name, fault in faults.items():
        assert found[name].level == "warning"
        assert fault in found[name].found
        assert found[name].fix == f"Repair or reinstall acme-{name}."


def test_a_plugin_that_hangs_while_it_loads_is_given_up(
    plugins: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(doctor, "LOAD_S", 1.0)
    code = "import threading\nthreading.Event().wait()"
    install(plugins, "acme", code, {"convergence.metrics": {"slow": "make"}})
    (found,) = doctor._plugins()
    assert (found.level, "did not load within 1 s" in found.found) == ("warning", True)


def test_one_name_of_two_packages_is_told(plugins: Path):
    for package in ("acme-one", "acme-two"):
        install(
            plugins, package, "def make(context): ...", {"convergence.providers": {"chat": "make"}}
        )
    assert [(one.level, "is offered by acme-" in one.found) for one in doctor._plugins()] == [
        ("warning", True)
    ] * 2


def test_missing_extras_are_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        doctor, "_is_installed", lambda name: name.lower() in {"bm25s", "pystemmer"}
    )
    (found,) = doctor._extras()
    assert found.level == "ok"
    assert found.found.startswith("installed: quickstart; missing")
    assert "otel" in found.found
    assert "test" not in found.found
    assert "[NAME]'" in found.fix
    monkeypatch.setattr(doctor, "_is_installed", lambda name: True)
    (found,) = doctor._extras()
    assert found.found.startswith("all installed: ")
