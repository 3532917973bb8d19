"""Training jobs, each of which trains one adapter in a process of low priority.

The process runs one step per request, so a pause takes effect after the current step. It ends when
this process ends. It writes into the job's folder::

    job.json             fingerprint of rows, settings, model and parent
    reference.json       log-probabilities of the responses by the base model
    progress.jsonl       a line for each step: step, loss, kl_nats
    checkpoint-N/        adapter, optimizer and random state after step N; complete once it holds
    the file ``complete``
    adapter/             the trained adapter, which appears atomically
    result.json          figures of the finished job

An interrupted or killed job continues from its newest complete checkpoint, bit for bit, if the
fingerprint is the same. Otherwise it starts again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tasks.functions.processes import ChildEndedError, ProcessPool
from tasks.models.files import ModelFiles

Objective = Literal["qrpo", "kto", "dpo"]
MODULE: Final = "tasks.training.trainer_process"
STEP_LIMIT_S: Final = 3600.0
"""Maximum duration of one step in seconds, including loading and the reference; a longer one
counts as hung.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """One answer to learn from."""

    messages: tuple[dict[str, str], ...]
    """Prompt as chat messages."""
    response: str
    """Answer; for DPO, the better one."""
    target: float = 0.5
    """QRPO: quantile of its rating, in (0, 1). KTO: 1 for desirable, 0 for undesirable. DPO:
    unused."""
    rejected: str | None = None
    """DPO: the worse answer."""
    weight: float = 1.0
    """Weight of its loss."""
    key: str = ""
    """Keys of the answers; the order of rows depends only on keys and seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """Hyper-parameters of a job; ``n_threads`` changes only the speed."""

    objective: Objective = "qrpo"
    learning_rate: float = 3e-4
    """Learning rate of the first step, decreasing linearly to 0 after the last."""
    beta: float = 0.05
    """Weight of the log-ratio to the base model: larger values stay closer to it."""
    batch_size: int = 4
    """Rows (DPO: pairs) of one forward pass; QRPO compares them with each other."""
    steps: int = 60
    max_seq_length: int = 512
    """Maximum tokens of prompt and response; longer responses are cut, longer prompts skipped."""
    max_gradient_norm: float = 1.0
    lora_rank: int = 8
    lora_alpha: int = 16
    """alpha / rank scales the adapter's change. A parent's rank and alpha are kept."""
    seed: int = 0
    checkpoint_steps: int = 10
    """Number of steps between checkpoints."""
    n_threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """Input of one training round."""

    model: ModelFiles
    """Base model."""
    rows: tuple[TrainingRow, ...]
    settings: TrainingSettings
    parent: Path | None = None
    """Folder of the adapter to start from; ``None`` means the base model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStep:
    """Result of one step."""

    step: int
    """Counted from 1."""
    loss: float
    """Loss of the objective."""
    kl_nats: float
    """Half the variance of the log-ratios in the step's batches, nats per response: a second-order
    approximation of the divergence from the base model. The gate measures the divergence on
    answers of the candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """Result of a job."""

    adapter: Path | None = None
    """Folder of the trained adapter; ``None`` if interrupted or failed."""
    n_steps: int = 0
    """Number of completed steps, including those before an interruption."""
    losses: tuple[float, ...] = ()
    kl_estimate: float | None = None
    """Mean of ``TrainingStep.kl_nats`` over the last quarter of the steps; ``None`` without steps.
    """
    n_rows: int = 0
    """Number of rows read."""
    cpu_s: float = 0.0
    """CPU seconds of this call's process."""
    peak_bytes: int = 0
    """Peak memory in bytes."""
    interrupted: bool = False
    """Whether a pause ended it; calling again continues."""
    failure: str | None = None
    """Why there is no adapter; ``None`` without a failure."""
    resumed_from: int = 0
    """Number of steps completed by an earlier call."""


def never() -> bool:
    """Return false, which means no pause."""
    return False


def no_report(_: TrainingStep) -> None:
    """Ignore a step."""


def run_training(
    job: TrainingJob,
    folder: Path,
    *,
    should_pause: Callable[[], bool] = never,
    on_step: Callable[[TrainingStep], None] = no_report,
    module: str = MODULE,
) -> TrainingResult:
    """Train an adapter in a separate process and wait for it.

    Args:
        job: Job to train.
        folder: Working folder. The same folder and job resume after an interruption.
        should_pause: Called before each step; true saves a checkpoint and ends the call.
        on_step: Called with each step.
        module: Module of the process.

    Example:
        >>> result = run_training(job, Path("round-1"))
        >>> result.adapter, result.losses[-1]
    """
    folder.mkdir(parents=True, exist_ok=True)
    pool = ProcessPool(module, (job, folder))
    n_steps, failure = 0, ""
    try:
        while not failure:
            message = "pause" if should_pause() else "go"
            report: TrainingStep | TrainingResult = pool.call(message, STEP_LIMIT_S)
            if isinstance(report, TrainingResult):
                return report
            n_steps = report.step
            on_step(report)
    except TimeoutError:
        failure = f"a step took longer than {STEP_LIMIT_S:g} s, and the training process was ended"
    except ChildEndedError as error:
        code = "before it started" if error.exit_code is None else f"with {error.exit_code}"
        failure = f"the training process ended {code}: too little memory is the usual cause"
    finally:
        pool.close()
    return TrainingResult(n_steps=n_steps, failure=failure)
