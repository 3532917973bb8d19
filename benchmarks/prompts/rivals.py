"""GEPA in the planted worlds, with the same writer and the small validation set its authors advise.

It needs a separate environment with numpy and scipy, but without this project:

    python -m venv build/gepa && build/gepa/bin/pip install gepa==0.1.4 numpy scipy
    build/gepa/bin/python -m benchmarks.prompts --opts gepa-4 gepa-4:280 gepa-6:600 --seeds 30

The writer reads symptoms from the proposer's prompt, which lists a minibatch's answers, worst first. GEPA stops after
the step that reaches the limit.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from benchmarks.prompts.writer import Writer

N_CASES: Final = 40


def gepa(
    mock: Any, seed: int, n_calls: int, n_validation: int, reflect: Callable[[Any], str]
) -> str:
    """Return GEPA's best prompt: reflective mutation, per-case Pareto front.

    Args:
        mock: Answering model of the run.
        seed: Seed of the library.
        n_calls: Maximum metric calls.
        n_validation: Number of cases in its front.
        reflect: Writer that maps a request to an answer.
    """
    import gepa as library  # noqa: PLC0415 - of its own environment
    from gepa.core.adapter import EvaluationBatch  # noqa: PLC0415 - as above

    listed = [*mock.world.cases(N_CASES)]

    class Adapter:
        propose_new_texts = None

        def evaluate(
            self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False
        ) -> Any:
            answers = mock.ask_all(candidate["prompt"], batch)
            return EvaluationBatch(
                outputs=answers,
                scores=[answer.score for answer in answers],
                trajectories=[*zip(batch, answers, strict=True)] if capture_traces else None,
            )

        def make_reflective_dataset(
            self,
            candidate: dict[str, str],  # noqa: ARG002 - theirs
            eval_batch: Any,
            components_to_update: list[str],
        ) -> Mapping[str, Sequence[Mapping[str, str]]]:
            rows = [
                {
                    "Inputs": case.message,
                    "Generated Outputs": a.text,
                    "Feedback": a.reason or "good",
                }
                for case, a in sorted(eval_batch.trajectories, key=lambda pair: pair[1].score)
            ]
            return dict.fromkeys(components_to_update, rows)

    result = library.optimize(
        seed_candidate={"prompt": mock.world.start},
        trainset=listed[n_validation:],
        valset=listed[:n_validation],
        adapter=Adapter(),
        reflection_lm=reflect,
        max_metric_calls=n_calls,
        seed=seed,
        logger=_Silent(),
    )
    return str(result.best_candidate["prompt"])


def reflecting(writer: Writer) -> Callable[[Any], str]:
    """Return a function that answers GEPA's edit requests."""

    def reflect(prompt: Any) -> str:
        blocks = re.findall(r"```\n(.*?)\n```", str(prompt), re.DOTALL)
        return f"```\n{writer.edit('reflect', [blocks[0]], blocks[1])}\n```"

    return reflect


class _Silent:
    def log(self, message: str) -> None:
        """Suppress logging."""
