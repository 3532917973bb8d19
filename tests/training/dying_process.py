"""A training process without a model: it does one step and dies in the second."""

import os

from tasks.functions.processes import Parent
from tasks.training.jobs import TrainingResult, TrainingStep


def main() -> None:
    parent = Parent()
    asked: list[str] = []

    def answer(message: str) -> TrainingStep | TrainingResult:
        asked.append(message)
        if message == "pause":
            return TrainingResult(adapter=None, n_steps=len(asked) - 1, interrupted=True)
        if len(asked) > 1:
            os._exit(9)
        return TrainingStep(step=1, loss=1.0, kl_nats=0.0)

    parent.serve(answer)
