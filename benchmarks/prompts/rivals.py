"""Other people's prompt optimizers in the planted world: the same writer, the same number of metric calls.

Each needs its own environment, in which nothing of this project is installed but numpy is:

    python -m venv build/gepa  && build/gepa/bin/pip install gepa==0.1.4 numpy
    python -m venv build/capo  && build/capo/bin/pip install promptolution==2.3.0 numpy
    python -m venv build/mipro && build/mipro/bin/pip install 'dspy[optuna]==3.4.1' numpy
    build/gepa/bin/python -m benchmarks.prompts run --opts gepa --seeds 30 --out build/prompts.csv

Where an optimizer asks its model to write, the stand-in writer answers in the form that is asked for. GEPA shows
answers with feedback, so the writer reads their symptoms. CAPO and MIPROv2 show no failures: the writer then takes
up one lacking property at random, which is what it can do without a symptom. An optimizer whose last step would
exceed the limit is stopped there and hands over what it has found best so far.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.prompts.world import (
    NAMES,
    OTHER_START,
    START,
    World,
    WorldAnswer,
    WorldCase,
    cases,
    properties_of,
)
from benchmarks.prompts.writer import merge, revise, written

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


def any_edit(parent: str, rng: np.random.Generator) -> str:
    """Return an edit without failures: one lacking property, drawn at random."""
    lacking = [name for name in NAMES if name not in properties_of(parent)]
    return revise(parent, [str(rng.choice(lacking))] if lacking else [], rng)


# -- GEPA


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


# -- CAPO


def capo(seed: int, n_calls: int) -> str:
    """Return what CAPO hands over: crossover, mutation and racing over blocks of cases."""
    import pandas as pd  # noqa: PLC0415 - of its own environment
    from promptolution.llms.base_llm import BaseLLM  # noqa: PLC0415 - as above
    from promptolution.optimizers.capo import CAPO  # noqa: PLC0415 - as above
    from promptolution.predictors.base_predictor import BasePredictor  # noqa: PLC0415 - as above
    from promptolution.tasks.reward_tasks import RewardTask  # noqa: PLC0415 - as above

    random.seed(seed)
    meter, rng, listed = Meter(seed, n_calls), np.random.default_rng([seed, 3]), cases(N_CASES)
    by_message = {case.message: case for case in listed}

    class Target(BaseLLM):  # type: ignore[misc]  # of a library without types
        tokenizer = None

        def _get_response(self, prompts: list[str], system_prompts: list[str]) -> list[str]:  # noqa: ARG002 - theirs
            found = []
            for prompt in prompts:
                text, _, message = prompt.rpartition("\n")
                found.append(str(meter.ask(text, by_message[message]).score))
            return found

    class Writer(BaseLLM):  # type: ignore[misc]  # as above
        tokenizer = None

        def _get_response(self, prompts: list[str], system_prompts: list[str]) -> list[str]:  # noqa: ARG002 - theirs
            return [f"<prompt>{self._written(prompt)}</prompt>" for prompt in prompts]

        def _written(self, prompt: str) -> str:
            both = re.search(r"Prompt 1: (.*?)\nPrompt 2: (.*?)\n\nReturn", prompt, re.DOTALL)
            if both is not None:
                return merge(both[1], both[2], rng)
            one = re.search(r"\nPrompt: (.*?)\n\nReturn", prompt, re.DOTALL)
            return any_edit(START if one is None else one[1], rng)

    class Numbers(BasePredictor):  # type: ignore[misc]  # as above
        def _extract_preds(self, preds: list[str]) -> list[str]:
            return preds

    task = RewardTask(
        pd.DataFrame({"x": [case.message for case in listed]}),
        float,
        task_description="Sort messages.",
        n_subsamples=4,
        eval_strategy="sequential_block",
        seed=seed,
    )
    first = [START, OTHER_START, any_edit(START, rng), any_edit(START, rng)]
    made = CAPO(
        predictor=Numbers(Target()),
        task=task,
        meta_llm=Writer(),
        initial_prompts=[*dict.fromkeys(first)],
        crossovers_per_iter=4,
        upper_shots=0,
        max_n_blocks_eval=5,
        check_fs_accuracy=False,
        create_fs_reasoning=False,
        df_few_shots=pd.DataFrame({"x": []}),
    )
    try:
        made.optimize(n_steps=100)
    except LimitReachedError:
        return meter.best(4)
    return str(made.prompts[0].instruction)


# -- MIPROv2


def mipro(seed: int, n_calls: int) -> str:
    """Return what MIPROv2 hands over: proposed instructions, chosen by TPE on minibatches."""
    import dspy  # noqa: PLC0415 - of its own environment
    from dspy.teleprompt import MIPROv2  # noqa: PLC0415 - as above

    meter, rng, listed = Meter(seed, n_calls), np.random.default_rng([seed, 4]), cases(N_CASES)

    class Writer(dspy.BaseLM):  # type: ignore[misc]  # of a library without types
        """Proposes instructions; what else it is asked for gets a plain answer."""

        def __init__(self) -> None:
            super().__init__(model="writer")

        def __call__(
            self,
            prompt: str | None = None,
            messages: Any = None,
            **more: Any,  # noqa: ARG002 - settings of a model
        ) -> list[str]:
            content = prompt or " ".join(str(m["content"]) for m in messages or ())
            names = dict.fromkeys(re.findall(r"\[\[ ## (\w+) ## \]\]", content))
            answer = any_edit(START, rng)
            fields = [n for n in names if n not in {"completed"}] or ["proposed_instruction"]
            return [
                "\n".join(f"[[ ## {n} ## ]]\n{answer}\n" for n in fields) + "[[ ## completed ## ]]"
            ]

    class Sort(dspy.Module):  # type: ignore[misc]  # as above
        """Asks the world with the instruction of its predictor."""

        def __init__(self) -> None:
            super().__init__()
            self.sort = dspy.Predict(dspy.Signature("message -> department", START))

        def forward(self, message: str) -> Any:
            text = self.sort.signature.instructions
            score = meter.ask(text, next(c for c in listed if c.message == message)).score
            return dspy.Prediction(department=str(score))

    lm = Writer()
    dspy.configure(lm=lm)
    examples = [dspy.Example(message=c.message).with_inputs("message") for c in listed]
    optimizer = MIPROv2(
        metric=lambda example, prediction, trace=None: float(prediction.department),  # noqa: ARG005
        prompt_model=lm,
        task_model=lm,
        auto=None,
        num_candidates=10,
        max_bootstrapped_demos=0,
        max_labeled_demos=0,
        num_threads=1,
        seed=seed,
        verbose=False,
    )
    try:
        made = optimizer.compile(
            Sort(), trainset=examples, valset=examples, num_trials=20, minibatch=True,
            minibatch_size=5, minibatch_full_eval_steps=5,
        )  # fmt: skip
    except LimitReachedError:
        return meter.best(5)
    return str(made.sort.signature.instructions)


RIVALS: Final[Mapping[str, Callable[[int, int], str]]] = {
    "capo": capo,
    "gepa": gepa,
    "mipro": mipro,
}
