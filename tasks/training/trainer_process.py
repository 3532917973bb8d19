"""Process that trains one adapter, one step per message of its parent.

PyTorch and a model take gigabytes, which the process frees when it ends. It has the lowest
priority, so that answers to users come first.
"""

import copy
import json
import os
import resource
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from convergence_core.feedback.objectives import seeded_order
from tasks.functions.processes import Parent
from tasks.training import job_folder
from tasks.training.jobs import TrainingJob, TrainingResult, TrainingRow, TrainingStep

if TYPE_CHECKING:
    from tasks.training.adapter_trainer import AdapterTrainer

LIBRARIES: Final = ("torch", "transformers", "trl", "peft")
"""Libraries whose versions enter a job's fingerprint, because they may round differently."""
LOWEST_PRIORITY: Final = 19


class Exchange:
    """Exchange between the training thread and the thread that talks to the parent."""

    def __init__(self) -> None:
        self._messages: SimpleQueue[str] = SimpleQueue()
        self._reports: SimpleQueue[TrainingStep | TrainingResult] = SimpleQueue()

    def answer(self, message: str) -> TrainingStep | TrainingResult:
        """Pass the parent's message to the training thread, and return its next report."""
        self._messages.put(message)
        return self._reports.get()

    def wants_pause(self) -> bool:
        """Wait for the parent's message; return whether it requests a pause."""
        return self._messages.get() == "pause"

    def report(self, report: TrainingStep | TrainingResult) -> None:
        """Send a report as the answer to the parent's message."""
        self._reports.put(report)


def main() -> None:
    """Train while another thread answers the parent."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # no downloads, no reports
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["TQDM_DISABLE"] = "1"
    parent = Parent()
    job: TrainingJob
    job, folder = parent.settings
    os.nice(LOWEST_PRIORITY)
    warnings.simplefilter("ignore", FutureWarning)  # by libraries about each other
    exchange = Exchange()
    talk = threading.Thread(target=parent.serve, args=(exchange.answer,), daemon=True)
    talk.start()
    _run(job, folder, exchange)  # an unexpected error ends the process, and with it the call
    talk.join()


def _run(job: TrainingJob, folder: Path, exchange: Exchange) -> None:
    """Train, and report the result even if it is a failure."""
    if exchange.wants_pause():
        exchange.report(TrainingResult(interrupted=True))
        return
    try:
        result = train(job, folder, exchange)
    except (ValueError, RuntimeError, OSError) as error:
        n_steps = len(job_folder.read_steps(folder))
        result = _measured(TrainingResult(n_steps=n_steps, failure=str(error)))
    exchange.report(result)


def train(job: TrainingJob, folder: Path, exchange: Exchange) -> TrainingResult:
    """Train a job's adapter, or continue it; the caller has read the first message.

    Raises:
        ValueError: too few rows are left, or a loss is not a number.
        RuntimeError: PyTorch fails, e.g. because memory is too small.
        OSError: a file cannot be read or written.
    """
    job_folder.prepare(
        folder, job_folder.fingerprint(job, [version(library) for library in LIBRARIES])
    )
    if (finished := job_folder.read_result(folder)) is not None:
        return finished
    n_done, checkpoint = job_folder.newest_checkpoint(folder)
    job_folder.read_steps(folder, n_done)
    trainer, n_rows = _build(job, folder, exchange)
    if checkpoint is not None and n_done == job.settings.steps:
        _load_weights(trainer.model, checkpoint)
    else:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    steps = job_folder.read_steps(folder)
    result = _measured(
        TrainingResult(
            n_steps=len(steps),
            losses=tuple(step.loss for step in steps),
            kl_estimate=_late_mean([step.kl_nats for step in steps]),
            n_rows=n_rows,
            resumed_from=n_done,
        )
    )
    if len(steps) < job.settings.steps:
        return replace(result, interrupted=True)
    adapter = folder / job_folder.ADAPTER
    job_folder.write_result(folder, result)
    job_folder.write_folder(adapter, lambda part: save_adapter(trainer.model, part))
    job_folder.remove_checkpoints(folder)
    return replace(result, adapter=adapter)


def _build(job: TrainingJob, folder: Path, exchange: Exchange) -> tuple["AdapterTrainer", int]:
    """Return the trainer at its first step, and how many rows it reads."""
    import torch  # noqa: PLC0415 - takes seconds

    from tasks.training.adapter_trainer import AdapterTrainer, StepCallback  # noqa: PLC0415 - as above
    from tasks.training.tokenized_rows import tokenized  # noqa: PLC0415 - brings torch

    settings = job.settings
    torch.set_num_threads(settings.n_threads)
    model, tokenizer = load_model(job)
    texts = _ordered(job.rows, np.random.default_rng(settings.seed))
    rows = tokenized(tokenizer, texts, settings.max_seq_length)
    least = 2 if settings.objective == "qrpo" else 1
    if len(rows) < least:
        raise ValueError(
            f"{len(rows)} of {len(texts)} rows fit into max_seq_length={settings.max_seq_length}, "
            f"and {settings.objective} needs {least}: raise it, or rate more answers"
        )
    torch.manual_seed(settings.seed)  # for the adapter's first weights
    trainer = AdapterTrainer(
        model=model,
        tokenizer=tokenizer,
        peft_config=_adapter_config(job),
        rows=rows,
        settings=settings,
        folder=folder,
    )
    trainer.add_callback(StepCallback(trainer, folder, exchange.report, exchange.wants_pause))
    # The reference is the base model, whose answers a fresh adapter leaves unchanged. Rows of
    # earlier rounds keep their targets, so reading them again does not apply them twice.
    trainer.references = _references(trainer, folder)
    if job.parent is not None:
        _load_weights(trainer.model, job.parent)
    return trainer, len(rows)


def load_model(job: TrainingJob) -> tuple[Any, Any]:
    """Load the base model in single precision, and its tokenizer."""
    import torch  # noqa: PLC0415 - takes seconds
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - takes seconds

    files = job.model
    more: dict[str, Any] = {} if files.gguf is None else {"gguf_file": files.gguf}
    tokenizer = AutoTokenizer.from_pretrained(files.folder, **more)
    model = AutoModelForCausalLM.from_pretrained(files.folder, dtype=torch.float32, **more)
    if files.gguf is None:
        return model, tokenizer
    # The weights are unpacked, but marked as quantized, which the trainer refuses.
    config = copy.deepcopy(model.config)
    del config.quantization_config
    plain = type(model)(config)
    plain.load_state_dict(model.state_dict())
    return plain, tokenizer


def _ordered(rows: Sequence[TrainingRow], rng: np.random.Generator) -> list[TrainingRow]:
    keys = [f"{row.key}\n{json.dumps(row.messages)}\n{row.response}" for row in rows]
    return [rows[i] for i in seeded_order(keys, rng)]


def _adapter_config(job: TrainingJob) -> Any:
    from peft import LoraConfig, PeftConfig  # noqa: PLC0415 - takes seconds

    if job.parent is not None:
        config = PeftConfig.from_pretrained(job.parent)
        config.inference_mode = False
        return config
    return LoraConfig(
        r=job.settings.lora_rank,
        lora_alpha=job.settings.lora_alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )


def _load_weights(model: Any, folder: Path) -> None:
    """Copy the weights of another adapter of the same shape.

    Raises:
        ValueError: the shapes differ.
    """
    from peft import load_peft_weights, set_peft_model_state_dict  # noqa: PLC0415 - takes seconds

    loaded = set_peft_model_state_dict(model, load_peft_weights(folder, device="cpu"))
    if loaded.unexpected_keys:
        raise ValueError(
            f"the parent adapter {folder.name} is of another model: it has "
            f"{len(loaded.unexpected_keys)} weights that this model has not"
        )


def _references(trainer: "AdapterTrainer", folder: Path) -> list[list[float]]:
    """Return the log-probabilities of the responses by the base model, computed once."""
    path = folder / job_folder.REFERENCE
    if path.is_file():
        references: list[list[float]] = json.loads(path.read_text("utf-8"))
        return references
    references = trainer.score_rows()
    job_folder.write_file(path, json.dumps(references))
    return references


def save_adapter(model: Any, folder: Path) -> None:
    """Write an adapter in PEFT's layout.

    Raises:
        ValueError: a weight is not finite.
    """
    import torch  # noqa: PLC0415 - takes seconds

    for name, weights in model.named_parameters():
        if "lora_" in name and not bool(torch.isfinite(weights).all()):
            raise ValueError(f"the trained weights {name} are not finite: lower the learning rate")
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # an unfilled template


def _late_mean(values: list[float]) -> float | None:
    late = values[-max(1, len(values) // 4) :]
    return sum(late) / len(late) if late else None


def _measured(result: TrainingResult) -> TrainingResult:
    """Return a result with the resource use of this process."""
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return replace(result, cpu_s=time.process_time(), peak_bytes=peak)
