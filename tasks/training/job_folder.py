"""Files of a training job: fingerprint, progress, checkpoints, adapter."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Final

from tasks.training.jobs import TrainingJob, TrainingResult, TrainingStep

ADAPTER: Final = "adapter"
CHECKPOINT: Final = "checkpoint-"
MARK: Final = "complete"
"""File that completes a checkpoint, written last."""
PROGRESS: Final = "progress.jsonl"
RESULT: Final = "result.json"
JOB: Final = "job.json"
REFERENCE: Final = "reference.json"
WEIGHTS: Final = "adapter_model.safetensors"


def write_folder(target: Path, write: Callable[[Path], object]) -> None:
    """Write a folder atomically; its files are on disk before it appears.

    Args:
        target: Folder to create; it must not exist.
        write: Fills a temporary folder in the same parent.
    """
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    write(part)
    for path in part.rglob("*"):
        if path.is_file():
            _sync(path)
    _sync(part)
    part.rename(target)
    _sync(target.parent)


def write_file(path: Path, text: str) -> None:
    """Write a file atomically."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    _sync(part)
    part.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def folder_sha256(folder: Path) -> str:
    """Return a hash of the names and bytes of a folder's files."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(f"{path.relative_to(folder)}:{path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def fingerprint(job: TrainingJob, versions: Sequence[str]) -> str:
    """Return a hash of everything that determines a job's adapter; row order does not.

    ``checkpoint_steps`` is excluded: the steps do not depend on it.
    """
    settings = asdict(replace(job.settings, checkpoint_steps=1))
    inputs = {
        "settings": settings,
        "rows": sorted(json.dumps(asdict(row), sort_keys=True) for row in job.rows),
        "model": job.model.fingerprint(),
        "parent": None if job.parent is None else folder_sha256(job.parent),
        "versions": list(versions),
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def prepare(folder: Path, wanted: str) -> None:
    """Keep the files of an earlier call of the same job; remove those of another job."""
    path = folder / JOB
    if path.is_file() and json.loads(path.read_text("utf-8"))["fingerprint"] == wanted:
        return
    path.unlink(missing_ok=True)  # first: a partly removed folder belongs to no job
    for old in folder.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink()
    write_file(path, json.dumps({"fingerprint": wanted}))


def newest_checkpoint(folder: Path) -> tuple[int, Path | None]:
    """Return the last step with a complete checkpoint, and its folder; remove incomplete ones."""
    checkpoint = {}
    for path in folder.glob(f"{CHECKPOINT}*"):
        if (path / MARK).is_file():
            checkpoint[int(path.name.removeprefix(CHECKPOINT))] = path
        else:
            shutil.rmtree(path)
    step = max(checkpoint, default=0)
    return step, checkpoint.get(step)


def complete_checkpoint(folder: Path, step: int) -> None:
    """Mark the checkpoint of a step as complete, and remove the earlier ones."""
    path = folder / f"{CHECKPOINT}{step}"
    for file in path.rglob("*"):
        if file.is_file():
            _sync(file)
    write_file(path / MARK, "")
    remove_checkpoints(folder, but=path)


def remove_checkpoints(folder: Path, but: Path | None = None) -> None:
    """Remove the checkpoints of a job, or all but one."""
    for path in folder.glob(f"{CHECKPOINT}*"):
        if path != but:
            shutil.rmtree(path)


def add_step(folder: Path, step: TrainingStep) -> None:
    """Append a step to the progress file."""
    with (folder / PROGRESS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(step)) + "\n")


def read_steps(folder: Path, up_to: int | None = None) -> list[TrainingStep]:
    """Return the recorded steps, without a last line that was cut off.

    Args:
        folder: Folder of the job.
        up_to: Last step to keep; later lines are removed from the file. ``None`` keeps all.
    """
    path = folder / PROGRESS
    text = path.read_text("utf-8") if path.is_file() else ""
    whole = text.rpartition("\n")[0].splitlines()
    steps = [TrainingStep(**json.loads(line)) for line in whole]
    if up_to is None:
        return steps
    kept = [step for step in steps if step.step <= up_to]
    write_file(path, "".join(json.dumps(asdict(step)) + "\n" for step in kept))
    return kept


def write_result(folder: Path, result: TrainingResult) -> None:
    """Write the figures of a finished job."""
    figures = asdict(replace(result, adapter=None))
    write_file(folder / RESULT, json.dumps(figures))


def read_result(folder: Path) -> TrainingResult | None:
    """Return the result of a finished job; ``None`` if it is unfinished."""
    path = folder / RESULT
    if not path.is_file() or not (folder / ADAPTER / WEIGHTS).is_file():
        return None
    stored = json.loads(path.read_text("utf-8"))
    stored.update(adapter=folder / ADAPTER, losses=tuple(stored["losses"]))
    names = {field.name for field in fields(TrainingResult)}  # earlier versions wrote others, too
    return TrainingResult(**{name: value for name, value in stored.items() if name in names})
