"""Demonstration of training from ratings: a tiny model, a synthetic rater.

Everything is the real path: answers are logged, marks stored, an adapter trained, judged and activated.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from convergence_core.feedback.records import ChatMessage, Interaction, Rating
from convergence_core.result.number_text import plural
from tasks.inputs.loader import load
from tasks.models.files import ModelFiles
from tasks.models.tiny_chat_model import make_tiny_chat_model
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore, new_interaction_id
from tasks.training import demo_world
from tasks.training.judged_model import JudgedModel, SampledPrompt
from tasks.training.round import RoundReport, train_role

MODEL: Final = "model"
ROLE: Final = "assistant"
RATER: Final = "synthetic-rater"
ANSWERS_PER_PROMPT: Final = 4
MAX_TOKENS: Final = 48
DEGRADED_RATE: Final = 2e-2
"""Twenty times the rate of the demonstration: the loss goes on falling while the model forgets how to speak."""
SEED: Final = 0

RATER_FILE = '''"""Rates answers of the demonstration by what they deserve: right ones, and brief ones a little."""

from tasks.training.demo_world import deserved, question_of


def rate(prompt: str, answer: str) -> float:
    question = question_of(prompt)
    assert question is not None, f"no question of the demonstration: {prompt}"
    return deserved(question, answer)
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a step of the demonstration came to."""

    title: str
    lines: tuple[str, ...] = ()


def configuration_text(rate: float = 1e-3) -> str:
    """Return the demonstration's configuration."""
    found = {
        "api": {
            "name": "demo",
            "description": "A tiny model that learns from ratings which city is the capital.",
            "kind": "local",
            "request": {
                "timeout_seconds": 120,
                "messages": [{"role": "user", "content": "{input}"}],
                "options": {"model": MODEL, "max_tokens": MAX_TOKENS},
            },
        },
        "feedback": {
            "training": {
                "learning_rate": rate, "beta": 0.2, "batch_size": 8, "steps": 120, "held_out": 0.5,
                "rater": "rater.py:rate",
                # Its answers are given all by one version, so that before and after can be seen.
                "live_test": {"enabled": False},
            }
        },
        "search_space": {
            "parameters": {"temperature": {"type": "float", "min": 0, "max": 1, "default": 1.0}}
        },
        "evaluation": {
            "test_cases": {
                "inline": [
                    {"input": demo_world.Question(country, 0).text, "expected": city}
                    for country, city in demo_world.CAPITALS.items()
                ],
                "approved": "approved_cases.jsonl",
            },
            "metrics": {"right": {"type": "contains"}},
        },
        "storage": {"path": "./convergence-data"},
    }  # fmt: skip
    return yaml.safe_dump(found, sort_keys=False, allow_unicode=True)


def play(folder: Path, n_answers: int = ANSWERS_PER_PROMPT) -> Iterator[Said]:
    """Play the demonstration in a new folder, yielding what each step came to.

    Args:
        folder: is made; must not exist.
        n_answers: to each prompt.
    """
    folder.mkdir(parents=True)
    (folder / "rater.py").write_text(RATER_FILE, "utf-8")
    (folder / "optimization.yaml").write_text(configuration_text(), "utf-8")
    dialogues = list(demo_world.examples(random.Random(SEED), 4_000))  # noqa: S311 - a demonstration
    yield Said(
        title="A tiny model is made on the spot",
        lines=(
            f"It learns from {len(dialogues):,} dialogues about {plural(len(demo_world.CAPITALS), 'capital')}, in which "
            f"{demo_world.SHARE_RIGHT:.0%} of the answers are right and {demo_world.SHARE_BRIEF:.0%} brief.",
        ),
    )
    make_tiny_chat_model(folder / MODEL, dialogues, seed=SEED)
    loaded = load(folder / "optimization.yaml")
    with FeedbackStore(folder / "convergence-data") as feedback:
        adapters = AdapterStore(feedback)
        before = _answered(folder, None)
        yield _rated(folder, feedback, None, n=n_answers, seed=SEED)
        first = train_role(loaded, feedback, ROLE, is_forced=True)
        yield _told("An adapter is trained on the marks, and judged", first)
        active = adapters.active(ROLE)
        if active is None:
            return
        after = _answered(folder, adapters.folder(active.version))
        yield Said(
            title="The next answers come from it",
            lines=tuple(
                f"{question.text}  {old}  ->  {new}"
                for question, old, new in list(
                    zip(demo_world.questions(), before, after, strict=True)
                )[::32]
            ),
        )
        yield _rated(folder, feedback, active.version, n=n_answers // 2, seed=SEED + 1)
        (folder / "degraded.yaml").write_text(configuration_text(DEGRADED_RATE), "utf-8")
        degraded = train_role(load(folder / "degraded.yaml"), feedback, ROLE, is_forced=True)
        yield _told(
            f"A second one is trained at a rate of {DEGRADED_RATE:g} in place of 0.001", degraded
        )
        adapters.rollback(ROLE, by="demonstration")
        again = _answered(folder, None)
        yield Said(
            title="A rollback",
            lines=(
                f"{active.version} is taken back: the base model answers, and "
                f"{sum(a == b for a, b in zip(before, again, strict=True))} of {len(before)} answers are word for "
                "word those from before.",
            ),
        )
        adapters.activate(active.version, by="demonstration")
        yield Said(title="Activated again", lines=(f"{active.version} answers once more.",))


def _answered(folder: Path, adapter: Path | None) -> list[str]:
    """Return one answer to each question, the likeliest."""
    prompts = [_prompt(one, temperature=0.0) for one in demo_world.questions()]
    with JudgedModel(ModelFiles(folder=folder / MODEL, gguf=None)) as model:
        return model.answers(prompts, adapter, n=1, seed=SEED)


def _prompt(question: demo_world.Question, *, temperature: float = 1.0) -> SampledPrompt:
    return SampledPrompt(
        key=question.text,
        messages=({"role": "user", "content": question.text},),
        max_tokens=MAX_TOKENS,
        temperature=temperature,
    )


def _rated(
    folder: Path, feedback: FeedbackStore, version: str | None, *, n: int, seed: int
) -> Said:
    """Let a version answer every question, and the rater mark each answer."""
    rng = random.Random(seed)  # noqa: S311 - as above
    adapter = None if version is None else AdapterStore(feedback).folder(version)
    asked = [one for one in demo_world.questions() for _ in range(n)]
    with JudgedModel(ModelFiles(folder=folder / MODEL, gguf=None)) as model:
        prompts = [_prompt(one) for one in demo_world.questions()]
        answers = model.answers(prompts, adapter, n=n, seed=1_000 * seed)
    total = 0
    for question, answer in zip(asked, answers, strict=True):
        name, rating = new_interaction_id(), demo_world.rated(question, answer, rng)
        feedback.log(
            Interaction(
                interaction_id=name,
                source="demo",
                event_id=name,
                role=ROLE,
                user_id=RATER,
                model=MODEL,
                messages=(ChatMessage(role="user", content=question.text),),
                response=answer,
                created_us=feedback.now_us(),
                adapter_version=version,
                sampling={"temperature": 1.0, "max_tokens": MAX_TOKENS},
            )
        )
        feedback.rate(Rating(interaction_id=name, user_id=RATER, rating=rating, source="demo"))
        total += rating
    who = "the base model" if version is None else version
    return Said(
        title=f"{len(answers):,} answers by {who} are marked by a synthetic rater",
        lines=(
            f"Mean rating {total / len(answers):.2f} of 1 to 5, over {plural(len(answers), 'mark')}.",
        ),
    )


def _told(title: str, report: RoundReport) -> Said:
    lines = [one.words for one in report.checks]
    return Said(title=title, lines=(*lines, f"{report.sentence}."))
