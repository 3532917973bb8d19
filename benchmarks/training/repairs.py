"""Sixteen successive repairs of eight facts, by which marks each round trains on.

    OMP_NUM_THREADS=1 python -m benchmarks.training.repairs --seeds 3

A tiny model knows eight capitals wrongly: its likeliest answer is a neighbour's city. In each of sixteen
rounds one country is asked about, each twice in all; the model answers five wordings six times each at
temperature 1, a synthetic rater marks each answer, and an adapter is trained from the one before. A fact
is right if the likeliest answers to at least two of three other wordings are. Printed per way and seed:
how many facts are right after each round, how many of those that were right once were wrong at the end,
and in how many rounds the gate's check of repairs would have refused the adapter.

all        every mark so far, as a round does
newest     the marks of this round alone

Measured on one thread: right after the last round 8, 8, 8 and 6, 6, 7 of 8; wrong at the end although once
right 0, 0, 0 and 1, 1, 1; rounds that would have been refused 2, 3, 0 and 5, 7, 9. Two more ways were measured
at the same seeds and are built no longer. The newest marks, as many earlier ones and the penalty of elastic
weight consolidation (lambda .03): 7, 7, 8; 1, 1, 0; 5, 6, 1. The mean, by PEFT's `cat`, of adapters each
trained on its round's marks from the base model: 0, 1, 1; 4, 1, 2; 4, 6, 1.
"""

import argparse
import csv
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, get_args

from benchmarks.training.smollm2 import Unattended
from convergence_core.feedback.activation_gate import GateLimits
from convergence_core.feedback.objectives import rating_quantiles
from tasks.models.files import ModelFiles
from tasks.models.tiny_chat_model import make_tiny_chat_model
from tasks.training import trainer_process
from tasks.training.demo_world import (
    BRIEF,
    CAPITALS,
    SHARE_BRIEF,
    WORDY,
    Question,
    rated,
)
from tasks.training.jobs import (
    TrainingJob,
    TrainingResult,
    TrainingRow,
    TrainingSettings,
    TrainingStep,
)

Way = Literal["all", "newest"]
WAYS: Final[tuple[Way, ...]] = get_args(Way)
COUNTRIES: Final = tuple(CAPITALS)
N_ROUNDS: Final = 16
TRAINED_WORDINGS: Final = range(5)
ASKED_WORDINGS: Final = range(5, 8)
N_ANSWERS: Final = 6
SHARE_WRONG: Final = 0.45
"""Of the answers that the model learns from: the neighbour's city."""
SHARE_RIGHT: Final = 0.25
SETTINGS: Final = TrainingSettings(
    steps=40,
    batch_size=8,
    learning_rate=1e-3,
    beta=0.2,
    checkpoint_steps=10_000,
    max_seq_length=96,
)


class Silent(Unattended):
    """Parent of a training in this process, which prints nothing."""

    def report(self, report: TrainingStep | TrainingResult) -> None:
        """Take a step."""


class Speaker:
    """The tiny model with any adapter."""

    def __init__(self, files: ModelFiles) -> None:
        """Load the model."""
        job = TrainingJob(model=files, rows=(), settings=SETTINGS)
        self.base, self.tokenizer = trainer_process.load_model(job)

    def answers(
        self, questions: Sequence[Question], adapter: Path | None, seed: int | None
    ) -> list[str]:
        """Return an answer to each question: sampled, or where there is no seed, the likeliest."""
        import torch  # noqa: PLC0415 - takes seconds
        from peft import PeftModel  # noqa: PLC0415 - as above

        model = (
            self.base if adapter is None else PeftModel.from_pretrained(self.base, adapter)
        ).eval()
        texts = [
            self.tokenizer.apply_chat_template(
                [{"role": "user", "content": one.text}], add_generation_prompt=True, tokenize=False
            )
            for one in questions
        ]
        inputs = self.tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        how: dict[str, Any] = {"do_sample": False}
        if seed is not None:
            torch.manual_seed(seed)
            how = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        with torch.inference_mode():
            out = model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                max_new_tokens=40,
                pad_token_id=self.tokenizer.pad_token_id,
                **how,
            )
        if adapter is not None:
            self.base = model.unload()
        given = out[:, inputs["input_ids"].shape[1] :]
        return list(self.tokenizer.batch_decode(given, skip_special_tokens=True))

    def right(self, adapter: Path | None) -> frozenset[str]:
        """Return the countries whose capital the likeliest answers name, to most of the wordings."""
        asked = [Question(country, k) for country in COUNTRIES for k in ASKED_WORDINGS]
        given = self.answers(asked, adapter, None)
        n_right = dict.fromkeys(COUNTRIES, 0)
        for question, answer in zip(asked, given, strict=True):
            n_right[question.country] += question.is_right(answer)
        return frozenset(one for one, n in n_right.items() if n > len(ASKED_WORDINGS) / 2)


def mistaken_dialogues(n: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield questions, most of which are answered with the neighbour's city."""
    rng = random.Random(seed)  # noqa: S311 - a simulation
    for _ in range(n):
        asked = Question(rng.choice(COUNTRIES), rng.randrange(ASKED_WORDINGS.stop))
        at = COUNTRIES.index(asked.country)
        neighbour = COUNTRIES[(at + 1) % len(COUNTRIES)]
        others = [one for one in COUNTRIES if one not in {asked.country, neighbour}]
        drawn = rng.random()
        who = neighbour if drawn < SHARE_WRONG else rng.choice(others)
        if drawn > 1 - SHARE_RIGHT:
            who = asked.country
        form = rng.choice(BRIEF if rng.random() < SHARE_BRIEF else WORDY)
        yield asked.text, form.format(city=CAPITALS[who])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one way came to."""

    n_right: tuple[int, ...]
    """Facts that are right, before the first round and after each."""
    n_undone: int
    """Facts that were right after their first repair and wrong after the last round."""
    n_refused: int
    """Rounds whose adapter kept too few of those that were right before it."""
    cpu_s: float


def repair(speaker: Speaker, files: ModelFiles, folder: Path, way: Way, seed: int) -> Outcome:
    """Repair one fact after the other, each twice."""
    started_s = time.process_time()
    rng = random.Random(seed)  # noqa: S311 - a simulation
    adapter: Path | None = None
    marked: list[TrainingRow] = []
    history, once, n_refused = [speaker.right(None)], set[str](), 0
    for k in range(N_ROUNDS):
        country = COUNTRIES[k % len(COUNTRIES)]
        newest = _marked(speaker, country, adapter, rng, k)
        marked += newest
        adapter = _trained(
            files, marked, len(newest) if way == "newest" else len(marked),
            parent=adapter, folder=folder / f"round-{k}", seed=seed,
        )  # fmt: skip
        before, after = history[-1], speaker.right(adapter)
        if before and len(before & after) < GateLimits().least_repairs_kept * len(before):
            n_refused += 1
        once |= after & {country}
        history.append(after)
    return Outcome(
        n_right=tuple(map(len, history)),
        n_undone=len(once - history[-1]),
        n_refused=n_refused,
        cpu_s=time.process_time() - started_s,
    )


def _marked(
    speaker: Speaker, country: str, adapter: Path | None, rng: random.Random, number: int
) -> list[TrainingRow]:
    """Return answers to the wordings that train, with the ranks of their marks."""
    asked = [Question(country, k) for k in TRAINED_WORDINGS for _ in range(N_ANSWERS)]
    answers = speaker.answers(asked, adapter, rng.randrange(1 << 30))
    marks = [rated(question, text, rng) for question, text in zip(asked, answers, strict=True)]
    return [
        TrainingRow(
            messages=({"role": "user", "content": question.text},),
            response=text,
            target=mark,
            key=f"{number:02d}-{i:02d}",
        )
        for i, (question, text, mark) in enumerate(zip(asked, answers, marks, strict=True))
    ]


def _trained(
    files: ModelFiles,
    marked: Sequence[TrainingRow],
    n_read: int,
    *,
    parent: Path | None,
    folder: Path,
    seed: int,
) -> Path:
    """Return an adapter that was trained on the last of some marked answers, ranked among all."""
    ranks = rating_quantiles(["rater"] * len(marked), [one.target for one in marked])
    rows = [replace(one, target=float(q)) for one, q in zip(marked, ranks, strict=True)]
    job = TrainingJob(
        model=files,
        rows=tuple(rows[-n_read:]),
        settings=replace(SETTINGS, seed=seed),
        parent=parent,
    )
    folder.mkdir()
    result = trainer_process.train(job, folder, Silent())  # type: ignore[arg-type]  # no parent process
    assert result.adapter is not None, result.failure
    return result.adapter


def main() -> None:
    """Print a row for each way and seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    told = parser.parse_args()
    writer = csv.writer(sys.stdout)
    writer.writerow(["way", "seed", "right_after_each_round", "undone", "refused", "cpu_s"])
    for seed in range(told.seeds):
        with TemporaryDirectory() as root:
            files = ModelFiles(folder=Path(root) / "model", gguf=None)
            make_tiny_chat_model(files.folder, list(mistaken_dialogues(4_000, seed)), seed=seed)
            speaker = Speaker(files)
            for way in told.ways:
                folder = Path(root) / way
                folder.mkdir()
                found = repair(speaker, files, folder, way, seed)
                path = " ".join(map(str, found.n_right))
                writer.writerow(
                    [way, seed, path, found.n_undone, found.n_refused, f"{found.cpu_s:.0f}"]
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
