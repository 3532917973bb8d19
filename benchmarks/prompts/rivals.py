"""GEPA in the planted world: the same writer, the same number of metric calls.

It needs its own environment, in which nothing of this project is installed but numpy is:

    python -m venv build/gepa && build/gepa/bin/pip install gepa==0.1.4 numpy
    build/gepa/bin/python -m benchmarks.prompts --opts gepa --seeds 30

The mock writer answers in the form that a rival requests, and reads the symptoms of the answers in the request.
A rival whose last step would exceed the limit stops and hands over its best prompt so far.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.prompts.world import START, World, WorldAnswer, WorldCase, cases
from benchmarks.prompts.writer import written

N_CASES: Final = 20


class LimitReachedError(Exception):
    """All metric calls are spent."""


class Meter:
    """The world, closed after a number of calls; remembers what was asked of each prompt."""

    def __init__(self, seed: int, n_calls: int) -> None:
        self._world = World(seed)
        self._n_calls = n_calls
        self.scores: dict[str, list[float]] = {}

    def ask(self, text: str, case: WorldCase) -> WorldAnswer:
        """Answer a case.

        Raises:
            LimitReachedError: nothing is left.
        """
        if self._world.n_calls >= self._n_calls:
            raise LimitReachedError
        answer = self._world.ask(text, case)
        self.scores.setdefault(text, []).append(answer.score)
        return answer

    def best(self, least: int) -> str:
        """Return the prompt of the highest mean among those that were asked often enough."""
        known = {text: s for text, s in self.scores.items() if len(s) >= least} or self.scores
        return max(known, key=lambda text: float(np.mean(known[text])))


def gepa(seed: int, n_calls: int) -> str:
    """Return what GEPA hands over: reflective mutation, per-case Pareto front."""
    import gepa as library  # noqa: PLC0415 - of its own environment
    from gepa.core.adapter import EvaluationBatch  # noqa: PLC0415 - as above

    meter, rng, listed = Meter(seed, n_calls), np.random.default_rng([seed, 2]), [*cases(N_CASES)]

    class Adapter:
        propose_new_texts = None

        def evaluate(
            self, batch: list[WorldCase], candidate: dict[str, str], capture_traces: bool = False
        ) -> Any:
            answers = [meter.ask(candidate["prompt"], case) for case in batch]
            return EvaluationBatch(
                outputs=answers,
                scores=[answer.score for answer in answers],
                trajectories=answers if capture_traces else None,
            )

        def make_reflective_dataset(
            self,
            candidate: dict[str, str],  # noqa: ARG002 - theirs
            eval_batch: Any,
            components_to_update: list[str],
        ) -> Mapping[str, Sequence[Mapping[str, str]]]:
            ordered = sorted(eval_batch.trajectories, key=lambda answer: answer.score)
            rows = [{"Generated Outputs": a.text, "Feedback": a.reason or "good"} for a in ordered]
            return dict.fromkeys(components_to_update, rows)

    def reflect(prompt: Any) -> str:
        blocks = re.findall(r"```\n(.*?)\n```", str(prompt), re.DOTALL)
        return f"```\n{written('reflect', [blocks[0]], blocks[1], rng)}\n```"

    try:
        result = library.optimize(
            seed_candidate={"prompt": START},
            trainset=listed,
            valset=listed,
            adapter=Adapter(),
            reflection_lm=reflect,
            max_metric_calls=n_calls,
            seed=seed,
            logger=_Silent(),
        )
    except LimitReachedError:
        return meter.best(N_CASES)
    return str(result.best_candidate["prompt"])


class _Silent:
    def log(self, message: str) -> None:
        """Say nothing."""
