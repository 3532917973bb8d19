"""Training from ratings through the whole path, with a known truth.

    OMP_NUM_THREADS=1 python -m benchmarks.training.whole_path --seeds 5
    OMP_NUM_THREADS=1 python -m benchmarks.training.whole_path --world real --variants ratings --seeds 3

`convergence serve --chat` answers each question several times over HTTP, and a synthetic rater marks each answer
over HTTP. The flow `train` makes and judges an adapter, and the same running server answers the held-out questions
again. World `tiny` trains a new model of capitals for each seed; `real` asks SmolLM2-135M for capitals.

Variants: `ratings`, unchanged; `shuffled`, with marks shuffled among the answers, judged by the rater or
(`shuffled-marks`) by the held-out marks alone; `few`, 24 of the ratings; `few-pairs`, these plus pairs of the other
answers, preferred by a judge that passed its audit; `few-liar`, the reversed pairs, by a judge that failed it.

A row has the true mean rating of held-out answers before and after, its gain with a 95 % interval over questions,
the failed checks, KL in nats per answer, and the final share of well-formed answers by the gate's rules.
"""

import csv
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

import httpx
import numpy as np
import yaml

from benchmarks.machine import options
from benchmarks.tables import interval
from benchmarks.training.worlds import World, real, tiny
from convergence_core.feedback.held_out import form_fault
from convergence_core.feedback.records import ChatMessage, Interaction
from convergence_core.sao.preferences import (
    LEAST_MARGIN,
    Answer as SystemAnswer,
    Comparison,
    JudgedPair,
    Judgement,
)
from convergence_core.sao.rows import preference_rows, text_rows
from tasks.inputs.loader import load
from tasks.inputs.storage import new_record, store_path
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.tables.parquet_store import ParquetStore
from tasks.training.marks import is_held_out
from tests.support.capitals_world import MODEL

TOKEN: Final = "WHOLE_PATH_TOKEN"  # noqa: S105 - the name of a variable
SECRET: Final = "whole-path-" + "0" * 40
RATER: Final = "rater"
N_CLIENTS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Variant of rating and training."""

    training: dict[str, Any]
    """Keys of `feedback.training` on top of the world's; `None` removes one."""
    is_shuffled: bool = False
    is_few: bool = False
    """Whether only ``N_FEW`` training answers are rated."""
    pairs: Literal["none", "audited", "lying"] = "none"
    """Source of judged pairs of training answers."""


VARIANTS: Final = {
    "ratings": Variant(training={}),
    "shuffled": Variant(training={}, is_shuffled=True),
    "shuffled-marks": Variant(training={"rater": None}, is_shuffled=True),
    "few": Variant(training={}, is_few=True),
    "few-pairs": Variant(training={"preferences": True}, is_few=True, pairs="audited"),
    "few-liar": Variant(training={"preferences": True}, is_few=True, pairs="lying"),
}


WORLDS: Final = {"tiny": tiny, "real": real}
MOST_TRIES: Final = 5
N_FEW: Final = 24
STEEP: Final = 2.0
"""A judge's log-odds per point of difference in true rating."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer from the endpoint."""

    interaction_id: str
    question: str
    text: str


def write_configuration(folder: Path, world: World, variant: Variant) -> None:
    """Write a world's configuration with a variant's keys."""
    training = {**world.configuration["feedback"]["training"], **variant.training}
    kept = {key: value for key, value in training.items() if value is not None}
    feedback = {**world.configuration["feedback"], "training": kept}
    made = {**world.configuration, "feedback": feedback}
    (folder / "rater.py").write_text(world.rater, "utf-8")
    (folder / "optimization.yaml").write_text(yaml.safe_dump(made, sort_keys=False), "utf-8")


@contextmanager
def served(folder: Path) -> Iterator[httpx.Client]:
    """Serve a folder's chat; yield a client."""
    command = [sys.executable, "-m", "convergence", "serve", "--chat", "--no-ui", "--port", "0"]
    command += ["--token", f"{TOKEN}=chat,update"]
    server = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, text=True, env={**os.environ, TOKEN: SECRET}
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        bearer = {"Authorization": f"Bearer {SECRET}"}
        with httpx.Client(base_url=url, headers=bearer, timeout=600) as client:
            yield client
    finally:
        server.terminate()
        server.wait()


def at_once(work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    """Process items with several clients in parallel."""
    with ThreadPoolExecutor(N_CLIENTS) as pool:
        return list(pool.map(work, items))


def ask(client: httpx.Client, questions: list[str]) -> list[Answer]:
    """Return an answer to each question."""

    def one(question: str) -> Answer:
        messages = [{"role": "user", "content": question}]
        body = {"model": "assistant", "user": RATER, "messages": messages}
        response = client.post("/v1/chat/completions", json=body)
        for _ in range(MOST_TRIES):  # the service rejects an empty answer and does not log it
            if response.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
                response = client.post("/v1/chat/completions", json=body)
        response.raise_for_status()
        found = response.json()
        return Answer(found["id"], question, found["choices"][0]["message"]["content"])

    return at_once(one, questions)


def rate(
    client: httpx.Client, world: World, answers: list[Answer], variant: Variant, seed: int
) -> None:
    """Mark every answer as the synthetic rater does, optionally shuffling the marks."""
    rng = random.Random(seed)  # noqa: S311 - a simulation
    marks = [world.rated(one.question, one.text, rng) for one in answers]
    if variant.is_shuffled:
        rng.shuffle(marks)

    def one(pair: tuple[Answer, int]) -> None:
        answer, mark = pair
        path = f"/v1/interactions/{answer.interaction_id}/rating"
        client.post(path, json={"user_id": RATER, "rating": mark}).raise_for_status()

    at_once(one, list(zip(answers, marks, strict=True)))


def prefer(folder: Path, world: World, answers: list[Answer], *, is_lying: bool) -> None:
    """Publish judged pairs of answers to one question, as a preference round does."""
    pairs: list[JudgedPair] = []
    for first, second in pairwise(answers):
        if first.question != second.question or first.text == second.text:
            continue
        gap = world.deserved(first.question, first.text) - world.deserved(
            second.question, second.text
        )
        p = 1 / (1 + math.exp(STEEP * gap * (1 if is_lying else -1)))
        pairs.append(
            JudgedPair(
                comparison=Comparison(
                    prompt=first.question, first=SystemAnswer(text=first.text, author="system"),
                    second=SystemAnswer(text=second.text, author="system"), kind="incumbent",
                ),
                judgement=Judgement(p12=p, p21=p),
                dropped_by=None if abs(gap) * STEEP >= LEAST_MARGIN else "margin",
                round_number=0, position=len(pairs),
            )
        )  # fmt: skip
    loaded = load(folder / "optimization.yaml")
    store, record = ParquetStore(store_path(loaded)), new_record(loaded, name="demo", tags={})
    key = {"run_id": record.run_id, "generation": 0}
    trust = {"trust": 0.0 if is_lying else 0.8, "round": 0, "n_kept": len(pairs)}
    store.save_run(record)
    store.publish(
        record.run_id,
        0,
        {
            "payloads": text_rows(record.run_id, pairs),
            "preferences": preference_rows(record.run_id, 0, pairs),
            "preference_rounds": [{**key, **trust}],
            "generations": [{**key, "status": "done", "progress_json": "{}"}],
        },
    )


def is_kept(question: str, share: float) -> bool:
    """Return whether a question is held out."""
    asked = Interaction(
        interaction_id="x", source="x", event_id="x", role="assistant", user_id="x", model="x",
        messages=(ChatMessage(role="user", content=question),), response="", created_us=0,
    )  # fmt: skip
    return is_held_out(asked, share)


def true_ratings(world: World, answers: list[Answer], questions: list[str]) -> np.ndarray:
    """Return the mean rating, without noise, of each question's answers."""
    return np.array([
        fmean(world.deserved(one, answer.text) for answer in answers if answer.question == one)
        for one in questions
    ])  # fmt: skip


def measure(
    world: World, model: Path | None, folder: Path, name: str, seed: int
) -> dict[str, object]:
    """Play one variant in a new folder; return its row.

    Args:
        world: Questions and true ratings.
        model: Folder of the world's model; ``None`` means a packaged one.
        folder: New folder.
        name: Name of the variant.
        seed: Seed of the marks.
    """
    from flows.train import train  # noqa: PLC0415 - brings Prefect

    variant = VARIANTS[name]
    folder.mkdir()
    if model is not None:
        (folder / MODEL).symlink_to(model)
    write_configuration(folder, world, variant)
    share = world.configuration["feedback"]["training"]["held_out"]
    held_out = [one for one in world.questions if is_kept(one, share)]
    asked = [
        one
        for one in world.questions
        for _ in range(world.n_held_out if one in held_out else world.n_answers)
    ]
    with served(folder) as client:
        answers = ask(client, asked)
        trained = [one for one in answers if one.question not in held_out]
        marked = answers
        if variant.is_few:
            marked = [
                *trained[:: len(trained) // N_FEW],
                *(a for a in answers if a not in trained),
            ]
        rate(client, world, marked, variant, seed)
        if variant.pairs != "none":
            prefer(folder, world, trained, is_lying=variant.pairs == "lying")
        (report,) = train(str(folder / "optimization.yaml"), force=True)
        after = ask(client, [one for one in held_out for _ in range(world.n_held_out)])
    checks = {one.name: one for one in report.checks}
    with FeedbackStore(folder / "convergence-data") as feedback:
        active = AdapterStore(feedback).active("assistant")
        labels = {
            found.adapter_version
            for one in after
            if (found := feedback.interaction(one.interaction_id))
        }
    expected = None if active is None else active.version
    assert labels == {expected}, f"answered by {labels}, active is {expected}"
    before_ratings = true_ratings(world, answers, held_out)
    after_ratings = true_ratings(world, after, held_out)
    gain, low, high = interval(after_ratings - before_ratings)
    kl = checks["kl"]
    return {
        "seed": seed,
        "variant": name,
        "status": report.status,
        "before": round(float(before_ratings.mean()), 3),
        "after": round(float(after_ratings.mean()), 3),
        "gain": round(gain, 3),
        "low": round(low, 3),
        "high": round(high, 3),
        "well_formed": round(fmean(form_fault(one.text) is None for one in after), 3),
        "kl": kl.value,
        "kl_low": kl.low,
        "kl_high": kl.high,
        "failed_checks": " ".join(one.name for one in report.checks if not one.passed),
        "cpu_s": round(report.cpu_s, 1),
    }


def main() -> None:
    """Write one row per seed and variant."""
    args = options(__doc__, world="tiny", seeds=5, variants=tuple(VARIANTS))
    world = WORLDS[args.world]()
    writer = None
    for seed in range(args.seeds):
        with TemporaryDirectory() as scratch:
            model = Path(scratch) / MODEL
            if world.make_model is not None:
                world.make_model(model, seed)
            made = None if world.make_model is None else model
            for name in args.variants:
                found = measure(world, made, Path(scratch) / name, name, seed)
                if writer is None:
                    writer = csv.DictWriter(sys.stdout, found)
                    writer.writeheader()
                writer.writerow(found)
                sys.stdout.flush()


if __name__ == "__main__":
    main()
