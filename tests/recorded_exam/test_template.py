"""``init --template recorded-exam``: what users of the installed package get."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from convergence.__main__ import run

DATA = Path(__file__).parents[2] / "data/recorded-exam"


def test_the_example_is_written_with_its_licence_and_is_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "exam"
    assert run(["init", str(folder), "--template", "recorded-exam", "--json"]) == 0
    capsys.readouterr()
    written = {path.name for path in folder.iterdir()}
    own = {path.name for path in DATA.iterdir() if path.is_file()}
    assert written == own | {"optimization.schema.json"}
    assert {"LICENSE", "NOTICE"} <= written
    for name in own - {"optimization.yaml"}:
        assert (folder / name).read_bytes() == (DATA / name).read_bytes()
    assert run(["validate", str(folder / "optimization.yaml"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is True
    assert told["space_size"] == 143
    assert told["cases"] == {"search": 50, "holdout": 50}
    assert told["environment"] == {}


def test_the_example_fits_its_schema_and_stays_in_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(["init", str(tmp_path), "--template", "recorded-exam", "--json"]) == 0
    text = (tmp_path / "optimization.yaml").read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=./optimization.schema.json\n")
    tree = yaml.safe_load(text)
    jsonschema.validate(tree, json.loads((tmp_path / "optimization.schema.json").read_text()))
    assert tree["storage"]["path"] == "./convergence-data"
    assert tree["output"]["save_path"] == "./results"
    assert "../" not in text
    assert "checkout" not in text
