"""``init``: examples that are complete, valid, and never overwrite unasked."""

import json
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.support.commands import Runner

TEMPLATES = ("function", "http", "openai")


@pytest.mark.parametrize("template", TEMPLATES)
def test_written_example_is_valid(template: str, here: Path, cli: Runner):
    assert cli("init", ".", "--template", template).code == 0
    done = cli("validate", "optimization.yaml", "--json")
    assert done.code == 0, done.out
    assert done.json["ok"] is True


@pytest.mark.parametrize("template", TEMPLATES)
def test_example_has_at_least_twelve_cases_with_an_answer(template: str, here: Path, cli: Runner):
    cli("init", ".", "-t", template)
    cases = json.loads((here / "test_cases.json").read_text())
    assert len(cases) >= 12
    assert all(case["input"] and case["expected"] for case in cases)
    assert len({case["id"] for case in cases}) == len(cases)


@pytest.mark.parametrize("template", TEMPLATES)
def test_example_names_its_schema_and_fits_it(template: str, here: Path, cli: Runner):
    import jsonschema

    cli("init", ".", "-t", template)
    text = (here / "optimization.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=./optimization.schema.json\n")
    schema = json.loads((here / "optimization.schema.json").read_text())
    jsonschema.validate(yaml.safe_load(text), schema)


def test_existing_files_are_not_overwritten(here: Path, cli: Runner):
    (here / "optimization.yaml").write_text("mine")
    done = cli("init", ".")
    assert done.code == 2
    assert "optimization.yaml" in done.err
    assert "--force" in done.err
    assert (here / "optimization.yaml").read_text() == "mine"
    assert not (here / "test_cases.json").exists()


def test_force_overwrites(here: Path, cli: Runner):
    (here / "optimization.yaml").write_text("mine")
    assert cli("init", ".", "--force").code == 0
    assert "help_desk" in (here / "optimization.yaml").read_text()


def test_server_of_the_http_example_answers_its_cases(here: Path, cli: Runner):
    cli("init", ".", "--template", "http")
    server = subprocess.Popen(
        [sys.executable, "server.py", "0"], cwd=here, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        watchdog = threading.Timer(60, server.kill)
        watchdog.start()
        url = server.stdout.readline().split()[-1]
        watchdog.cancel()
        body = {"text": "You charged my card twice", "model": "large", "max_words": 16,
                "threshold": 0.0}  # fmt: skip
        request = urllib.request.Request(url, json.dumps(body).encode())  # noqa: S310 - ours
        with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310 - ours
            answer = json.load(reply)
        assert answer["result"]["team"] == "billing"
        assert answer["cost_usd"] > 0
    finally:
        server.kill()
        server.communicate()


def test_a_folder_whose_name_readers_of_the_store_expand_is_not_valid(
    here: Path, cli: Runner, monkeypatch: pytest.MonkeyPatch
):
    cli("init", "mine [1]")
    monkeypatch.chdir("mine [1]")
    done = cli("validate")
    assert done.code != 0
    assert "`storage.path` must not hold `*`, `?` or `[`" in done.err
