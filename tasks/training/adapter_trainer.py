"""Trainer of an adapter on rated answers: QRPO, KTO (APO-zero) and DPO.

The paper's QRPO regresses beta * ratio onto the quantile less a constant. That holds if answers
come from the policy in training. Logged answers do not, and with few of them the constant drifts,
so both sides are centred within the batch, which removes it. A batch then compares its answers but
leaves their common level free. If the level sinks, text that was never logged gains probability. A
small penalty on the squared level prevents that.

Notation
    D   log-ratio of a response to the reference, summed over its tokens, nats
    q   target in (0, 1);  w  weight of a row;  b  beta;  s  logistic function
    QRPO   w (((q - mean_w q) - b (D - mean_w D))^2 + c (b mean_w D)^2)
    KTO    w (1 - s(b D)) for a desirable answer, w s(b D) for another (apo_zero_unpaired)
    DPO    -w log s(b (D_chosen - D_rejected))
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch
from torch.nn import functional
from transformers import PrinterCallback, Trainer, TrainerCallback
from trl import KTOConfig, KTOTrainer

from tasks.training import job_folder
from tasks.training.jobs import Objective, TrainingSettings, TrainingStep
from tasks.training.tokenized_rows import TokenizedRow, batch

Tensor: TypeAlias = torch.Tensor

LEVEL_WEIGHT: Final = 0.1
"""c. At 0, well-formed answers of the tests' tiny model fell from .99 to .32; at .1, to .93."""


class NonFiniteLossError(ValueError):
    """A loss is not a number; the weights before it are the last good ones."""

    def __init__(self, step: int, loss: float) -> None:
        super().__init__(
            f"the loss of step {step} is {loss}: the learning rate is too high, or weights are broken"
        )


def qrpo_loss(ratios: Tensor, targets: Tensor, weights: Tensor, beta: float) -> Tensor:
    """Return the mean QRPO loss of a batch; see the module."""
    share = weights / weights.sum()
    left = (targets - (share * targets).sum()) - beta * (ratios - (share * ratios).sum())
    level = (share * ratios).sum()
    return (weights * (left**2 + LEVEL_WEIGHT * (beta * level) ** 2)).mean()


def kto_loss(ratios: Tensor, targets: Tensor, weights: Tensor, beta: float) -> Tensor:
    """Return the mean KTO loss of a batch; see the module."""
    sign = torch.where(targets > 0.5, 1.0, -1.0)
    return (weights * torch.sigmoid(-sign * beta * ratios)).mean()


def dpo_loss(ratios: Tensor, _: Tensor, weights: Tensor, beta: float) -> Tensor:
    """Return the mean DPO loss of a batch of pairs, all better responses first; see the module."""
    chosen, rejected = ratios.chunk(2)
    return (-weights * functional.logsigmoid(beta * (chosen - rejected))).mean()


LOSSES: Final[Mapping[Objective, Callable[[Tensor, Tensor, Tensor, float], Tensor]]] = {
    "qrpo": qrpo_loss,
    "kto": kto_loss,
    "dpo": dpo_loss,
}


def response_logps(model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the log-probability of each response, nats, shape (n responses,)."""
    out = model(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        labels=inputs["labels"],
        fused_lm_head=True,  # TRL's: without the prompts' logits, which take gigabytes
        use_cache=False,
    )
    logps: Tensor = out.log_probs.sum(-1)
    return logps


class AdapterTrainer(KTOTrainer):  # type: ignore[misc]  # TRL has no types where it is not installed
    """TRL's trainer with its own rows, row weights and three objectives."""

    def __init__(
        self,
        *,
        model: Any,
        tokenizer: Any,
        peft_config: Any,
        rows: Sequence[TokenizedRow],
        settings: TrainingSettings,
        folder: Path,
    ) -> None:
        """Add an adapter to a base model and prepare its training.

        Args:
            model: Base model without adapters.
            tokenizer: Tokenizer of the model.
            peft_config: Configuration of the adapter.
            rows: Rows in the order before shuffling.
            settings: Settings of the job.
            folder: Folder of the job.
        """
        from datasets import Dataset  # noqa: PLC0415 - takes seconds

        self._rows = rows
        self.references: Sequence[Sequence[float]] = [(0.0,) * len(r.responses) for r in rows]
        """Reference log-probabilities of the responses of each row."""
        self._objective = settings.objective
        self._micro_batches: list[tuple[float, float]] = []
        super().__init__(
            model=model,
            args=_arguments(settings, str(folder), n_rows=len(rows)),
            data_collator=self._collate,
            train_dataset=Dataset.from_list([{"row": i} for i in range(len(rows))]),
            processing_class=tokenizer,
            peft_config=peft_config,
        )
        self.remove_callback(PrinterCallback)

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        return dataset  # rows are already tokens

    def _collate(self, examples: Sequence[Mapping[str, int]]) -> dict[str, Any]:
        indices = [example["row"] for example in examples]
        return batch([self._rows[i] for i in indices], [self.references[i] for i in indices])

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        Trainer._save_checkpoint(self, model, trial)  # without TRL's model card

    def score_rows(self) -> list[list[float]]:
        """Return the log-probabilities of each row's responses under the current weights."""
        scores: list[list[float]] = []
        size = self.args.per_device_train_batch_size
        self.model.eval()
        with torch.no_grad():
            for start in range(0, len(self._rows), size):
                rows = self._rows[start : start + size]
                inputs = batch(rows, [(0.0,) * len(row.responses) for row in rows])
                moved = {name: tensor.to(self.args.device) for name, tensor in inputs.items()}
                logps = response_logps(self.model, moved).cpu().tolist()
                scores += [list(logps[i :: len(rows)]) for i in range(len(rows))]
        return scores

    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,  # noqa: ARG002 - the trainer passes it by name
    ) -> Any:
        """Return the loss of a batch and store its figures.

        Raises:
            NonFiniteLossError: the loss is not a number.
        """
        ratios = response_logps(model, inputs) - inputs["reference"]
        loss = LOSSES[self._objective](ratios, inputs["target"], inputs["weight"], self.beta)
        loss_value = float(loss.detach())
        if not math.isfinite(loss_value):
            raise NonFiniteLossError(self.state.global_step + 1, loss_value)
        spread = float(ratios.detach().var(correction=0)) / 2 if len(ratios) > 1 else 0.0
        self._micro_batches.append((loss_value, spread))
        return (loss, {"ratios": ratios}) if return_outputs else loss

    def step_figures(self) -> tuple[float, float]:
        """Return the means of loss and divergence since the last call."""
        n = max(1, len(self._micro_batches))
        loss, kl = (sum(batch[i] for batch in self._micro_batches) / n for i in range(2))
        self._micro_batches.clear()
        return loss, kl


class StepCallback(TrainerCallback):  # type: ignore[misc]  # as above
    """Records and reports each step, and waits for the parent's decision to continue."""

    def __init__(
        self,
        trainer: AdapterTrainer,
        folder: Path,
        report: Callable[[TrainingStep], None],
        wants_pause: Callable[[], bool],
    ) -> None:
        self._trainer = trainer
        self._folder = folder
        self._report = report
        self._wants_pause = wants_pause

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002
        """Report the step; a pause saves a checkpoint and ends the training."""
        loss, kl = self._trainer.step_figures()
        step = TrainingStep(step=state.global_step, loss=loss, kl_nats=kl)
        job_folder.add_step(self._folder, step)
        self._report(step)
        if self._wants_pause():
            control.should_save = control.should_training_stop = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002
        """Mark the checkpoint as complete."""
        job_folder.complete_checkpoint(self._folder, state.global_step)
        return control


def _arguments(settings: TrainingSettings, folder: str, *, n_rows: int) -> KTOConfig:
    return KTOConfig(
        output_dir=folder,
        per_device_train_batch_size=settings.batch_size,
        max_steps=settings.steps,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=0,
        max_grad_norm=settings.max_gradient_norm,
        weight_decay=0.0,
        seed=settings.seed,
        data_seed=settings.seed,
        beta=settings.beta,
        loss_type="apo_zero_unpaired",  # unused: we compute the loss
        train_sampling_strategy="random",
        dataloader_drop_last=n_rows >= settings.batch_size,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        max_length=None,
        bf16=False,
        activation_checkpointing=False,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        save_strategy="steps",
        save_steps=settings.checkpoint_steps,
    )
