"""Exit codes, messages without tracebacks, and what goes to which stream."""

import os
import pwd
import re
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

import convergence.__main__ as main_module
from convergence.cli import options
from convergence.cli.interrupts import Interrupt, Terminated, stops_cleanly
from convergence_core.errors import ConfigurationError, ForeignPackageError, StoreError
from tests.cli.test_running import ROOT
from tests.support.commands import Runner


@pytest.mark.parametrize("arguments", [["optimise"], ["--nope"], ["optimize", "--seed", "x"], []])
def test_wrong_arguments_are_bad_input(arguments: list[str], cli: Runner):
    assert cli(*arguments).code == 2


@pytest.mark.parametrize("command", ["", "init", "validate", "schema", "optimize",
                                     "resume", "runs", "report", "query", "doctor", "version"])  # fmt: skip
def test_every_command_has_help(command: str, cli: Runner):
    done = cli(*command.split(), "--help")
    assert done.code == 0
    assert "Usage: convergence" in done.out


def test_help_lists_ten_commands_and_the_others_on_request(here: Path, cli: Runner):
    def listed(*arguments: str) -> list[str]:
        return re.findall(r"^│ ([a-z]+)  ", cli(*arguments).out, re.MULTILINE)

    everyday = listed("--help")
    assert everyday == [
        "init", "optimize", "ui", "promote", "test", "serve", "chat", "train", "up", "deploy",
    ]  # fmt: skip
    assert listed("--help", "--all")[:10] == everyday
    assert {"resume", "validate", "games"} <= {*listed("--all")} - {*everyday}
    assert cli("optimize", "--all").code == 2


def test_problems_are_listed_one_per_line_with_their_places(here: Path, cli: Runner):
    (here / "optimization.yaml").write_text("api: {titles: x}\nsearch_space: {parameters: 3}\n")
    done = cli("validate")
    assert done.code == 2
    lines = done.err.splitlines()
    assert len(lines) >= 3
    assert all(line.startswith("optimization.yaml:") for line in lines[:-1])
    assert lines[-1] == f"{len(lines) - 1} problems found."
    assert "Traceback" not in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("error", "code"), [(StoreError("torn"), 1), (ConfigurationError([]), 2), (OSError("gone"), 1)]
)
def test_errors_are_one_message(
    error: Exception, code: int, cli: Runner, monkeypatch: pytest.MonkeyPatch
):
    def fail(names: object) -> None:
        raise error

    monkeypatch.setattr(main_module, "check_packages", fail)
    done = cli("version")
    assert (done.code, done.out) == (code, "")
    assert "Traceback" not in done.err


def test_a_file_that_cannot_be_written_is_told_in_words(here: Path, cli: Runner):
    (here / "taken").write_text("")
    done = cli("schema", "--output", "taken/schema.json")
    assert done.code == 1
    assert done.err == "Error: taken/schema.json: Not a directory\n"


def test_debug_shows_the_traceback_wherever_it_stands(here: Path, cli: Runner):
    for arguments in (["--debug", "validate", "no.yaml"], ["validate", "no.yaml", "--debug"]):
        with pytest.raises(ConfigurationError):
            cli(*arguments)


def test_unforeseen_error_is_a_message_that_names_debug(
    cli: Runner, monkeypatch: pytest.MonkeyPatch
):
    def fail() -> str:
        raise RuntimeError("odd")

    monkeypatch.setattr("tasks.version.code_version", fail)
    done = cli("version")
    assert done.code == 1
    assert "RuntimeError: odd" in done.err
    assert "--debug" in done.err
    done = cli("version", "--json")
    assert done.json == {"error": {"type": "RuntimeError", "message": "odd"}}


def test_foreign_package_stops_every_command(cli: Runner, monkeypatch: pytest.MonkeyPatch):
    def refuse(names: object) -> None:
        raise ForeignPackageError("package `tasks` must bear our marker")

    monkeypatch.setattr(main_module, "check_packages", refuse)
    done = cli("--help")
    assert done.code == 1
    assert "tasks" in done.err


def test_ctrl_c_outside_a_run_is_130(cli: Runner, monkeypatch: pytest.MonkeyPatch):
    def interrupt() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("tasks.version.code_version", interrupt)
    assert cli("version").code == 130


def test_ctrl_c_before_a_run_has_begun_raises_what_the_interpreter_takes_no_note_of():
    with (
        pytest.raises(KeyboardInterrupt) as caught,
        stops_cleanly(Mock(has_begun=False), Mock(), ""),
    ):
        signal.raise_signal(signal.SIGINT)
    assert caught.type is Interrupt


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_outside_of_a_flow_leaves_the_block(number: signal.Signals):
    with pytest.raises(Terminated, match=number.name), stops_cleanly(Mock(), Mock(), ""):
        signal.raise_signal(number)
    assert signal.getsignal(number) is signal.SIG_DFL


def test_reader_that_leaves_early_is_no_error(tmp_path: Path):
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m convergence schema | head -1"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


def test_a_user_without_an_account_goes_by_number(monkeypatch: pytest.MonkeyPatch):
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert options.account_name() == f"uid-{os.getuid()}"
