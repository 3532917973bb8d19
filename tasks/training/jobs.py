"""Training jobs: one adapter is trained on rows, in a process of low priority.

The process goes from step to step as it is asked, so that a pause takes effect after the step in
progress, and it ends when this process ends. What it writes lies in the job's folder::

    job.json             fingerprint of rows, settings, model and parent
    reference.json       log-probabilities of the responses by the base model
    progress.jsonl       a line for each step: step, loss, kl_nats
    checkpoint-N/        adapter, optimizer and random state after step N; complete once it has a mark
    adapter/             the trained adapter, which appears whole
    result.json          figures of the finished job

A job that was interrupted or killed goes on from its newest complete checkpoint, bit for bit, if the
fingerprint is the same; otherwise it starts anew.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from convergence_core.errors import ConfigurationError
from tasks.functions.processes import ChildEndedError, ProcessPool
from tasks.models.files import ModelFiles

Objective = Literal["qrpo", "kto", "dpo", "rlp"]
OBJECTIVES: Final[tuple[Objective, ...]] = ("qrpo", "kto", "dpo", "rlp")
PLACE: Final = "{thought}"
"""What stands for the thought in a prompt that predicts."""
NO_THOUGHT: Final = "(none)"
"""In its place where there is none."""
MODULE: Final = "tasks.training.trainer_process"
STEP_LIMIT_S: Final = 3600.0
"""Longest duration of one step, loading and the reference included; a process that takes longer hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """One answer to learn from."""

    messages: tuple[dict[str, str], ...]
    """The prompt, as messages of a chat."""
    response: str
    """The answer; of two, the better one."""
    target: float = 0.5
    """QRPO: quantile of its rating, in (0, 1). KTO: 1 desirable, 0 not. DPO: not read."""
    rejected: str | None = None
    """DPO: the worse answer."""
    predicts: str | None = None
    """RLP: what is asked for the response, with ``PLACE`` for the thought; the messages ask for the thought."""
    weight: float = 1.0
    """Of its loss."""
    key: str = ""
    """Names of the answers; rows are read in an order that depends on keys and seed alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """Hyper-parameters of a job. Each changes what is learned, ``n_threads`` alone only how fast."""

    objective: Objective = "qrpo"
    learning_rate: float = 3e-4
    """At the first step; it falls linearly to 0 after the last."""
    beta: float = 0.05
    """Weight of the log-ratio to the base model: larger stays nearer to it."""
    batch_size: int = 4
    """Rows (DPO: pairs) of one forward pass; QRPO compares them with each other."""
    steps: int = 60
    max_seq_length: int = 512
    """Tokens of prompt and response; longer responses are cut, longer prompts left out."""
    max_gradient_norm: float = 1.0
    lora_rank: int = 8
    lora_alpha: int = 16
    """The adapter's change is scaled by alpha / rank. Rank and alpha of a parent stay."""
    seed: int = 0
    n_thoughts: int = 4
    """RLP: thoughts to each row of a step; they are compared with each other. It reads no ``beta``, and takes a
    step of the optimizer for every ``batch_size`` thoughts."""
    thought_tokens: int = 64
    """RLP: longest thought."""
    thought_temperature: float = 0.7
    """RLP: at which thoughts are sampled."""
    checkpoint_steps: int = 10
    """Steps between two checkpoints."""
    n_threads: int = 1

    def __post_init__(self) -> None:
        """Refuse settings that cannot train.

        Raises:
            ConfigurationError: a value is out of its range.
        """
        if self.objective not in OBJECTIVES:
            rule = f"must be one of {', '.join(OBJECTIVES)}"
            raise ConfigurationError.of("objective", rule, "Choose one.", value=self.objective)
        for name in ("learning_rate", "beta", "max_gradient_norm", "thought_temperature"):
            _check(name, getattr(self, name), 0.0, is_open=True)
        for name in ("steps", "lora_rank", "lora_alpha"):
            _check(name, getattr(self, name), 1)
        _check("n_thoughts", self.n_thoughts, 2)
        for name in ("checkpoint_steps", "n_threads", "thought_tokens"):
            _check(name, getattr(self, name), 1)
        _check("max_seq_length", self.max_seq_length, 8)
        # A row that is compared with itself alone teaches nothing.
        _check("batch_size", self.batch_size, 2 if self.objective == "qrpo" else 1)


def _check(name: str, value: float, least: float, *, is_open: bool = False) -> None:
    if value > least or (value == least and not is_open):
        return
    rule = f"must be {'more than' if is_open else 'at least'} {least:g}"
    raise ConfigurationError.of(name, rule, "Give a larger value.", value=f"{value:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """What one round trains."""

    model: ModelFiles
    """The base model."""
    rows: tuple[TrainingRow, ...]
    settings: TrainingSettings
    parent: Path | None = None
    """Folder of the adapter to start from; ``None``: the base model as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStep:
    """One step, as it ended."""

    step: int
    """From 1."""
    loss: float
    """Of the objective."""
    kl_nats: float
    """Half the variance of the log-ratios within the step's batches, nats per response: to second order
    the divergence from the base model. The gate measures it on answers of the candidate. RLP: mean divergence
    from the policy that wrote the step's thoughts, nats per token."""
    gain_nats: float | None = None
    """RLP: mean reward of the step's thoughts. ``None``: another objective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """How a job ended."""

    adapter: Path | None
    """Folder of the trained adapter; ``None``: interrupted or failed."""
    n_steps: int
    """Steps that are done, those before an interruption included."""
    losses: tuple[float, ...] = ()
    kl_estimate: float | None = None
    """Mean of ``TrainingStep.kl_nats`` over the last quarter of the steps; ``None``: no step is done."""
    n_rows: int = 0
    """Rows read."""
    n_dropped: int = 0
    """Rows left out, for their prompt alone is longer than ``max_seq_length``."""
    cpu_s: float = 0.0
    """CPU seconds of the process of this call."""
    peak_bytes: int = 0
    """Most memory that it held."""
    interrupted: bool = False
    """Whether a pause ended it; called again, it goes on."""
    failure: str | None = None
    """Why there is no adapter, in words; ``None``: nothing failed."""
    resumed_from: int = 0
    """Steps that an earlier call had done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSettings:
    """What a training process is started with."""

    job: TrainingJob
    folder: Path = field(default_factory=Path)


def predicting(row: TrainingRow, thought: str | None) -> tuple[dict[str, str], ...]:
    """Return what asks for the response of a row, after a thought or none: its last message is replaced."""
    text = (row.predicts or PLACE).replace(PLACE, NO_THOUGHT if thought is None else thought)
    return (*row.messages[:-1], {"role": "user", "content": text})


def never() -> bool:
    """Return that no pause is wanted."""
    return False


def no_report(_: TrainingStep) -> None:
    """Report a step to nobody."""


def run_training(
    job: TrainingJob,
    folder: Path,
    *,
    should_pause: Callable[[], bool] = never,
    on_step: Callable[[TrainingStep], None] = no_report,
    module: str = MODULE,
) -> TrainingResult:
    """Train an adapter in a process of its own, and wait for it.

    Args:
        job: what to train.
        folder: where it works; the same folder and job go on where they were interrupted.
        should_pause: asked before each step; a true answer saves a checkpoint and ends the call.
        on_step: told of each step.
        module: of the process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pool = ProcessPool(module, TrainerSettings(job=job, folder=folder))
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
        code = "before it began" if error.exit_code is None else f"with {error.exit_code}"
        failure = f"the training process ended {code}: too little memory is the usual cause"
    finally:
        pool.close()
    return TrainingResult(adapter=None, n_steps=n_steps, failure=failure)
