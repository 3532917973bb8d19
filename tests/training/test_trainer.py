"""A tiny model learns from rated answers: what it learns, and that nothing is lost or half done."""

import itertools
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.models.files import PACKAGED, ModelFiles, find_model, install_commands
from tasks.training import job_folder
from tasks.training.jobs import (
    TrainingJob,
    TrainingResult,
    TrainingRow,
    TrainingSettings,
    TrainingStep,
    run_training,
)
from tests.training import tiny_chat_model as tiny

pytest.importorskip("peft", reason="needs the extra `local` (pip install '.[local]')")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2400),  # training gives way to whatever else runs (nice 19)
    # Warnings of other people's packages are theirs.
    pytest.mark.filterwarnings("ignore"),
]

ROWS = tiny.rated_rows(48)
SETTINGS = TrainingSettings(
    steps=12, batch_size=8, learning_rate=1e-3, beta=0.1, checkpoint_steps=4, max_seq_length=64
)
Train = Callable[..., TrainingResult]
_number = itertools.count()


class Script:
    """Parent of a training that runs in this process: it pauses where it is told to."""

    def __init__(self, pause_after: int | None = None) -> None:
        self.steps: list[TrainingStep] = []
        self._pause_after = pause_after

    def wants_pause(self) -> bool:
        return len(self.steps) == self._pause_after

    def report(self, report: TrainingStep | TrainingResult) -> None:
        assert isinstance(report, TrainingStep)
        self.steps.append(report)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    return ModelFiles(folder=tiny.make(tmp_path_factory.mktemp("tiny")), gguf=None)


@pytest.fixture(scope="module")
def train(files: ModelFiles, tmp_path_factory: pytest.TempPathFactory) -> Train:
    from tasks.training import trainer_process

    os.environ["HF_HUB_OFFLINE"] = "1"

    def trained(
        rows: tuple[TrainingRow, ...] = ROWS,
        *,
        parent: Path | None = None,
        folder: Path | None = None,
        pause_after: int | None = None,
        model: ModelFiles = files,
        **changed: object,
    ) -> TrainingResult:
        folder = folder or tmp_path_factory.mktemp(f"job{next(_number)}")
        settings = replace(SETTINGS, **changed)  # type: ignore[arg-type]  # by name
        job = TrainingJob(model=model, rows=rows, settings=settings, parent=parent)
        return trainer_process.train(job, folder, Script(pause_after))  # type: ignore[arg-type]  # its double

    return trained


@pytest.fixture(scope="module")
def plain(train: Train) -> TrainingResult:
    return train()


def weights(result: TrainingResult) -> bytes:
    assert result.adapter is not None
    return (result.adapter / job_folder.WEIGHTS).read_bytes()


def margins(files: ModelFiles, adapter: Path | None, rows: tuple[TrainingRow, ...]) -> np.ndarray:
    """Return the log-probability of each response, nats."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(files.folder)
    model = AutoModelForCausalLM.from_pretrained(files.folder, dtype=torch.float32)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter)
    found = []
    for row in rows:
        text = tokenizer.apply_chat_template(
            list(row.messages), add_generation_prompt=True, tokenize=False
        )
        prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
        whole = [*prompt, *tokenizer(row.response, add_special_tokens=False)["input_ids"], 3]
        with torch.no_grad():
            logps = model(torch.tensor([whole])).logits[0].log_softmax(-1)
        ends = range(len(prompt), len(whole))
        found.append(sum(float(logps[i - 1, whole[i]]) for i in ends))
    return np.array(found)


# -- losses


def test_the_gradient_of_qrpo_is_the_one_derived_by_hand():
    import torch

    from tasks.training.adapter_trainer import LEVEL_WEIGHT, qrpo_loss

    ratios = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0.9, 0.2, 0.4], dtype=torch.float64)
    weights = torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64)
    qrpo_loss(ratios, targets, weights, 0.1).backward()
    level = 0.5
    left = (targets - 0.5) - 0.1 * (ratios.detach() - level)  # means are both .5
    # d/dD_i of 1/n sum (left_i)^2: -2 b left_i / n, for the left sides sum to 0
    wanted = -2 * 0.1 * left / 3 + LEVEL_WEIGHT * 2 * 0.1**2 * level / 3
    torch.testing.assert_close(ratios.grad, wanted)
    other = ratios.detach().clone().requires_grad_()
    uneven = torch.tensor([3.0, 1.0, 0.5], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda d: qrpo_loss(d, targets, uneven, 0.1), (other,))


def test_kto_is_what_trl_computes_and_dpo_the_papers(files: ModelFiles, tmp_path: Path):
    import torch
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tasks.training.adapter_trainer import AdapterTrainer, dpo_loss
    from tasks.training.tokenized_rows import batch, tokenized

    tokenizer = AutoTokenizer.from_pretrained(files.folder)
    texts = [replace(row, target=float(row.target > 0.5)) for row in ROWS[:8]]
    rows = tokenized(tokenizer, texts, 64)
    trainer = AdapterTrainer(
        model=AutoModelForCausalLM.from_pretrained(files.folder, dtype=torch.float32),
        tokenizer=tokenizer, peft_config=LoraConfig(target_modules="all-linear"), rows=rows,
        settings=replace(SETTINGS, objective="kto"), folder=tmp_path,
    )  # fmt: skip
    references = [[one[0] - 0.3 * i] for i, one in enumerate(trainer.score_rows())]
    inputs = batch(rows, references)
    ours = trainer.compute_loss(trainer.model, inputs)
    trainer.precompute_ref_logps = True
    completion = (inputs["labels"] >= 0).long()
    theirs = trl_inputs(inputs, completion)
    told = trainer._compute_loss(trainer.model, theirs, return_outputs=False)
    torch.testing.assert_close(ours, told)
    chosen, rejected = torch.tensor([1.0, -0.5]), torch.tensor([0.2, 0.3])
    loss = dpo_loss(torch.cat([chosen, rejected]), torch.ones(2), torch.ones(2), 0.1)
    wanted = np.mean([np.logaddexp(0, -0.1 * 0.8), np.logaddexp(0, 0.1 * 0.8)])
    assert float(loss) == pytest.approx(wanted)


def trl_inputs(inputs: dict[str, Any], completion: Any) -> dict[str, Any]:
    kept = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    return {
        **kept,
        "completion_mask": completion,
        "ref_logps": inputs["reference"],
        "label": inputs["target"] > 0.5,
    }


# -- what is learned


@pytest.mark.parametrize("objective", ["qrpo", "kto", "dpo"])
def test_better_answers_rise_against_worse_ones_boundedly(files, train, objective: str):
    rows = ROWS
    if objective == "kto":
        rows = tuple(replace(row, target=float(row.target > 0.5)) for row in ROWS)
    if objective == "dpo":
        good = [row for row in ROWS if row.target > 0.6]
        bad = [row for row in ROWS if row.target < 0.4]
        rows = tuple(replace(a, rejected=b.response) for a, b in zip(good, bad, strict=False))
    result = train(rows, objective=objective, steps=40)
    held_out = tiny.rated_rows(40, seed=9)
    change = margins(files, result.adapter, held_out) - margins(files, None, held_out)
    targets = np.array([row.target for row in held_out])
    better, worse = change[targets > 0.6], change[targets < 0.4]
    assert better.mean() > worse.mean() + 0.2, (better.mean(), worse.mean())
    # Nothing collapses: the worst answer keeps more than e^-8 of its probability.
    assert change.min() > -8, change.min()
    assert result.n_steps == len(result.losses) == 40
    assert result.cpu_s > 0
    assert result.peak_bytes > 100e6


# -- interruptions


def test_a_paused_training_goes_on_bit_for_bit(train, plain, tmp_path: Path):
    first = train(folder=tmp_path, pause_after=5)
    assert first.interrupted
    assert first.adapter is None
    assert first.n_steps == 5
    second = train(folder=tmp_path, pause_after=6)  # of this call
    assert (second.resumed_from, second.n_steps, second.interrupted) == (5, 11, True)
    last = train(folder=tmp_path)
    assert (last.resumed_from, last.n_steps) == (11, 12)
    assert weights(last) == weights(plain)
    assert last.losses == plain.losses
    again = train(folder=tmp_path)
    assert again == last
    assert {path.name for path in tmp_path.iterdir()} == {
        "adapter", "job.json", "progress.jsonl", "reference.json", "result.json",
    }  # fmt: skip


def test_a_loss_that_is_no_number_ends_the_training(train, tmp_path: Path):
    from tasks.training.adapter_trainer import NonFiniteLossError

    with pytest.raises(NonFiniteLossError, match="the loss of step 2 is nan: the learning rate"):
        train(folder=tmp_path, learning_rate=1e30)
    assert not (tmp_path / "adapter").exists()


def test_a_killed_training_goes_on_bit_for_bit_at_the_lowest_priority(
    files: ModelFiles, plain: TrainingResult, tmp_path: Path
):
    job = TrainingJob(model=files, rows=ROWS, settings=SETTINGS)
    killed_at = iter((6, 11))
    priorities = set()

    def kill(step: TrainingStep, at: int) -> None:
        (pid,) = children()
        priorities.add(os.getpriority(os.PRIO_PROCESS, pid))
        if step.step == at:
            os.kill(pid, signal.SIGKILL)

    for at in killed_at:
        ended = run_training(job, tmp_path, on_step=lambda step, at=at: kill(step, at))  # type: ignore[misc]
        assert ended.failure is not None
        assert ended.failure.startswith("the training process ended with -9")
        assert not (tmp_path / "adapter").exists()
    last = run_training(job, tmp_path)
    assert last.resumed_from == 8
    assert last.failure is None
    assert weights(last) == weights(plain)
    assert priorities == {19}


def children() -> list[int]:
    """Return the numbers of this process's training processes."""
    assert sys.platform == "linux"
    found = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    pids = [int(pid) for path in found for pid in path.read_text().split()]
    told = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids}
    return [pid for pid, line in told.items() if b"trainer_process" in line]


# -- a real model


@pytest.mark.skipif(bool(install_commands()), reason=f"needs {' and '.join(install_commands())}")
def test_the_packaged_model_trains_from_its_packed_weights(train, tmp_path: Path):
    from tasks.training import trainer_process

    rows = tuple(
        TrainingRow(
            messages=({"role": "user", "content": f"What comes after {i}?"},),
            response=f"After {i} comes {i + 1}.", target=(i + 0.5) / 4, key=str(i),
        )
        for i in range(4)
    )  # fmt: skip
    settings = TrainingSettings(steps=2, checkpoint_steps=10, max_seq_length=64)
    packaged = find_model(PACKAGED, Path(), key="model")
    job = TrainingJob(model=packaged, rows=rows, settings=settings)
    result = trainer_process.train(job, tmp_path, Script())  # type: ignore[arg-type]  # its double
    assert result.n_steps == 2
    assert result.adapter is not None
    assert result.kl_estimate is not None
    assert result.kl_estimate > 0
    assert result.peak_bytes < 3e9
