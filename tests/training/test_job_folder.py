"""Files of a training job: whole or not at all, and nothing of another job."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.models.files import ModelFiles
from tasks.training import job_folder
from tasks.training.jobs import (
    TrainingJob,
    TrainingResult,
    TrainingRow,
    TrainingSettings,
    TrainingStep,
    run_training,
)

ROWS = tuple(
    TrainingRow(messages=({"role": "user", "content": f"q{i}"},), response=f"a{i}", key=f"k{i}")
    for i in range(3)
)


@pytest.fixture
def job(tmp_path: Path) -> TrainingJob:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    files = ModelFiles(folder=folder, gguf=None)
    return TrainingJob(model=files, rows=ROWS, settings=TrainingSettings())


def step(n: int) -> TrainingStep:
    return TrainingStep(step=n, loss=1 / n, kl_nats=0.1)


def test_a_fingerprint_tells_all_that_decides_an_adapter(job: TrainingJob, tmp_path: Path):
    def told(one: TrainingJob) -> str:
        return job_folder.fingerprint(one, ["1"])

    parent = tmp_path / "parent"
    parent.mkdir()
    (parent / "weights").write_bytes(b"1")
    others = [
        replace(job, rows=ROWS[:2]),
        replace(job, rows=(replace(ROWS[0], weight=2.0), *ROWS[1:])),
        replace(job, parent=parent),
        replace(job, settings=replace(job.settings, beta=0.1)),
    ]
    found = {told(one) for one in others} | {told(job), job_folder.fingerprint(job, ["2"])}
    assert len(found) == len(others) + 2
    assert told(replace(job, rows=ROWS[::-1])) == told(job)
    assert told(replace(job, settings=replace(job.settings, checkpoint_steps=3))) == told(job)
    before = told(others[2])
    (parent / "weights").write_bytes(b"2")
    assert told(others[2]) != before


def test_another_job_finds_an_empty_folder_and_the_same_one_what_it_left(tmp_path: Path):
    job_folder.prepare(tmp_path, "one")
    job_folder.add_step(tmp_path, step(1))
    (tmp_path / "checkpoint-1").mkdir()
    job_folder.prepare(tmp_path, "one")
    assert job_folder.read_steps(tmp_path) == [step(1)]
    job_folder.prepare(tmp_path, "two")
    assert [path.name for path in tmp_path.iterdir()] == ["job.json"]


def test_a_checkpoint_counts_once_it_is_marked(tmp_path: Path):
    for n in (2, 4, 6):
        (tmp_path / f"checkpoint-{n}").mkdir()
        (tmp_path / f"checkpoint-{n}" / "weights").write_text(str(n))
    assert job_folder.newest_checkpoint(tmp_path) == (0, None)
    for n in (2, 4, 6):
        (tmp_path / f"checkpoint-{n}").mkdir()
    job_folder.complete_checkpoint(tmp_path, 4)
    (tmp_path / "checkpoint-6").mkdir()  # killed while it was written
    assert job_folder.newest_checkpoint(tmp_path) == (4, tmp_path / "checkpoint-4")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-4"]


def test_steps_after_the_checkpoint_and_half_lines_are_forgotten(tmp_path: Path):
    for n in (1, 2, 3):
        job_folder.add_step(tmp_path, step(n))
    with (tmp_path / "progress.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')
    assert job_folder.read_steps(tmp_path) == [step(1), step(2), step(3)]
    assert job_folder.read_steps(tmp_path, 2) == [step(1), step(2)]
    assert (tmp_path / "progress.jsonl").read_text().count("\n") == 2


def test_a_folder_is_seen_whole_or_not_at_all(tmp_path: Path):
    target = tmp_path / "adapter"

    def half(part: Path) -> None:
        (part / job_folder.WEIGHTS).write_text("half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        job_folder.write_folder(target, half)
    assert not target.exists()
    job_folder.write_folder(target, lambda part: (part / job_folder.WEIGHTS).write_text("whole"))
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]
    assert (target / job_folder.WEIGHTS).read_text() == "whole"


def test_a_result_counts_with_its_adapter(tmp_path: Path):
    result = TrainingResult(adapter=None, n_steps=2, losses=(0.5, 0.25), kl_estimate=0.1)
    job_folder.write_result(tmp_path, result)
    assert job_folder.read_result(tmp_path) is None
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / job_folder.WEIGHTS).write_text("w")
    assert job_folder.read_result(tmp_path) == replace(result, adapter=tmp_path / "adapter")
    written = json.loads((tmp_path / "result.json").read_text())
    assert written["adapter"] is None
    (tmp_path / "result.json").write_text(
        json.dumps(written | {"n_dropped": 1})
    )  # as earlier versions did
    assert job_folder.read_result(tmp_path) == replace(result, adapter=tmp_path / "adapter")


def test_a_process_that_ends_fails_its_job_in_words(job: TrainingJob, tmp_path: Path):
    found = run_training(job, tmp_path / "job", module="tests.training.dying_process")
    assert found.adapter is None
    assert found.n_steps == 1
    assert found.failure == (
        "the training process ended with 9: too little memory is the usual cause"
    )
