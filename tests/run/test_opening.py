"""Opening a run: what it finds of earlier ones, and when its clocks begin."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from convergence_core.errors import ConfigurationError
from tasks.inputs.loader import load
from tasks.run.opener import edited_keys, loaded_of, open_run, prepare_run
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.optimizations import write_project


def test_a_run_that_begins_writes_that_a_killed_one_of_its_system_was_interrupted(tmp_path: Path):
    loaded = load(write_project(tmp_path))
    store = ParquetStore(tmp_path / "convergence-data")
    with prepare_run(loaded) as run:
        killed = run.record
    store.save_run(replace(killed, status="running", reason=None))
    with prepare_run(loaded) as run:
        assert store.run(killed.run_id).status == "interrupted"
        assert store.run(run.run_id).status == "running"


@pytest.fixture
def left(tmp_path: Path) -> tuple[str, str]:
    """Return the configuration of a run that was killed, and the run."""
    path = write_project(tmp_path)
    with prepare_run(load(path)) as run:
        killed = run.record
    ParquetStore(tmp_path / "convergence-data").save_run(
        replace(killed, status="running", reason=None)
    )
    return str(path), killed.run_id


def opened(config: str, **settings: Any) -> str:
    with open_run(config, None, **settings) as run:
        return run.run_id


def test_a_scheduled_run_goes_on_with_one_that_was_left(left: tuple[str, str]):
    config, killed = left
    assert opened(config, resume="auto") == killed


def test_a_scheduled_run_begins_anew_where_settings_or_cases_differ_or_it_is_told_to(
    left: tuple[str, str],
):
    config, killed = left
    assert opened(config, resume="auto", seed=99) != killed
    anew = opened(config, resume="never")
    assert anew != killed
    # The killed run is no longer the latest, and a new one must not end up behind it.
    assert opened(config, resume="auto") == anew
    (Path(config).parent / "cases.json").write_text(
        '[{"id": "c", "input": {"n": 1}}, {"id": "d", "input": {"n": 2}}]'
    )
    assert opened(config, resume="auto") not in (killed, anew)


def test_results_that_could_not_be_written_are_told_before_anything_is_asked(
    tmp_path: Path,
):
    (tmp_path / "taken").write_text("a file, and no folder")
    before = {*tmp_path.iterdir()}
    path = write_project(tmp_path, output={"save_path": "taken/results"})
    with pytest.raises(ConfigurationError) as caught:
        prepare_run(load(path))
    (problem,) = caught.value.problems
    assert (problem.key, problem.value.endswith(": Not a directory")) == ("output.save_path", True)
    assert {item.name for item in {*tmp_path.iterdir()} - before} <= {
        "optimization.yaml", "target.py", "cases.json",
    }  # fmt: skip


def test_what_was_edited_in_the_file_of_a_run_is_named(tmp_path: Path):
    path = write_project(tmp_path)
    with prepare_run(load(path)) as run:
        began = loaded_of(run.record)
    assert edited_keys(began) == []
    text = path.read_text()
    path.write_text(text.replace("seed", "no_such_key"))
    assert edited_keys(began) == []  # it cannot be read
    tree = yaml.safe_load(text)
    tree["evaluation"]["metrics"] = {"exact": {"type": "contains"}}
    tree["search_space"]["parameters"].popitem()
    tree["optimization"]["seed"] = 99
    path.write_text(yaml.safe_dump(tree))
    assert edited_keys(began) == ["search_space.parameters", "evaluation.metrics"]
    path.unlink()
    assert edited_keys(began) == []
