"""A tiny model learns which thoughts make what follows likelier, and nothing where nothing can be said."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tasks.models.files import ModelFiles
from tasks.training import job_folder
from tasks.training.jobs import TrainingJob, TrainingResult, TrainingRow, TrainingSettings
from tests.training import thinking_world as world
from tests.training.test_trainer import Script, weights

pytest.importorskip("peft", reason="needs the extra `local` (pip install '.[local]')")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2400),  # training gives way to whatever else runs (nice 19)
    pytest.mark.filterwarnings("ignore"),
]

SETTINGS = {
    "objective": "rlp", "batch_size": 8, "learning_rate": 1e-3, "n_thoughts": 8, "thought_tokens": 8,
    "thought_temperature": 1.0, "max_seq_length": 96, "checkpoint_steps": 2,
}  # fmt: skip
Train = Callable[..., tuple[TrainingResult, Script]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    return world.make(tmp_path_factory.mktemp("thinking") / "model")


@pytest.fixture(scope="module")
def train(files: ModelFiles, tmp_path_factory: pytest.TempPathFactory) -> Train:
    from tasks.training import trainer_process

    os.environ["HF_HUB_OFFLINE"] = "1"

    def trained(
        rows: tuple[TrainingRow, ...], *, steps: int, folder: Path | None = None,
        pause_after: int | None = None,
    ) -> tuple[TrainingResult, Script]:  # fmt: skip
        settings = TrainingSettings(steps=steps, **SETTINGS)  # type: ignore[arg-type]  # by name
        job = TrainingJob(model=files, rows=rows, settings=settings)
        script = Script(pause_after)
        folder = folder or tmp_path_factory.mktemp("thoughts")
        return trainer_process.train(job, folder, script), script  # type: ignore[arg-type]  # its double

    return trained


def gains(script: Script) -> np.ndarray:
    found = [one.gain_nats for one in script.steps]
    assert None not in found
    return np.array(found, dtype=float)


def test_thoughts_come_to_say_what_follows(train: Train):
    result, script = train(world.rows((0, 1, 2), world.TRUE), steps=30)
    assert result.adapter is not None
    found = gains(script)
    assert found[:5].mean() < 0  # a note of any colour costs more than it brings
    assert found[-5:].mean() > found[:5].mean() + 1.0
    assert found[-5:].mean() > 0.5


def test_where_nothing_can_be_said_nothing_is_gained(train: Train):
    _, script = train(world.rows((0, 1, 2), world.ANY), steps=30)
    assert gains(script)[-10:].mean() < 0.15


def test_a_paused_training_goes_on_bit_for_bit(train: Train, tmp_path: Path):
    rows = world.rows((0,), world.TRUE)
    whole, _ = train(rows, steps=4)
    paused, first = train(rows, steps=4, folder=tmp_path, pause_after=3)
    assert paused.interrupted
    assert paused.adapter is None
    resumed, second = train(rows, steps=4, folder=tmp_path)
    assert resumed.resumed_from == 3
    assert [one.step for one in [*first.steps, *second.steps]] == [1, 2, 3, 4]
    assert weights(resumed) == weights(whole)
    assert not list(tmp_path.glob(f"{job_folder.CHECKPOINT}*"))


def test_the_loss_raises_better_thoughts_and_stops_at_the_clip():
    import torch

    from tasks.training.thought_trainer import CLIP, clipped_loss

    old = torch.log(torch.tensor([[0.5, 0.5], [0.5, 0.5]]))
    logps = old.clone().requires_grad_()
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0]])  # the second thought has one token
    clipped_loss(logps, old, mask, torch.tensor([1.0, -1.0])).backward()
    assert logps.grad is not None
    # d/dlogp of -(1/2) (1/|c|) rho A at rho = 1
    assert logps.grad.tolist() == [[-0.25, -0.25], [0.5, 0.0]]
    far = (old + np.log(1 + 2 * CLIP)).requires_grad_()
    clipped_loss(far, old, mask, torch.tensor([1.0, 1.0])).backward()
    assert far.grad is not None
    assert not far.grad.any()
