"""World of capitals: a tiny model learns from a synthetic rater.

It uses the real path: the product logs answers, stores marks, and trains, judges and activates an adapter.

Eight countries have a capital; sixteen wordings ask for it. An answer is right or wrong, and brief or wordy. The
model learned from all kinds equally and gives each. The rater prefers right answers and, slightly, brief ones.

    rating = round(1 + 2.5 [right] + 1.5 [brief] + N(0, .5)), within 1 to 5
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from convergence_core.config.source import yaml_text
from convergence_core.feedback.records import ChatMessage, Interaction, Rating
from convergence_core.result.number_text import plural, whole_percent
from tasks.inputs.loader import load
from tasks.models.files import ModelFiles
from tasks.models.requests import ChatRequest
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore, new_interaction_id
from tasks.training.judged_model import JudgedModel
from tasks.training.round import RoundReport, train_role
from tests.support.spoken_chat_model import make_tiny_chat_model

CAPITALS: Final[Mapping[str, str]] = {
    "Peru": "Lima",
    "Kenya": "Nairobi",
    "Norway": "Oslo",
    "Canada": "Ottawa",
    "Japan": "Tokyo",
    "Egypt": "Cairo",
    "Cuba": "Havana",
    "Chile": "Santiago",
}
"""Country → its capital."""
WORDINGS: Final = (
    "What is the capital of {}?",
    "Name the capital of {}.",
    "Which city is the capital of {}?",
    "Tell me the capital of {}.",
    "{}: what is its capital?",
    "I need the capital of {}.",
    "What is {}'s capital?",
    "Which is the capital city of {}?",
    "Do you know the capital of {}?",
    "The capital of {} is which city?",
    "Please name {}'s capital.",
    "What city is {}'s capital?",
    "Can you say what the capital of {} is?",
    "{} has which capital?",
    "Give me the capital of {}.",
    "Of {}, what is the capital?",
)
BRIEF: Final = ("{city}.", "It is {city}.")
WORDY: Final = (
    "Well, as far as I know, I would say that the capital is perhaps {city}.",
    "That is a good question, and many people ask it: the capital is {city}, I think.",
)
SHARE_RIGHT: Final = 0.5
"""Share of right answers in the model's training data."""
SHARE_BRIEF: Final = 0.4
NOISE: Final = 0.5
"""Standard deviation of a rating around the answer's true rating."""


@dataclass(frozen=True, slots=True)
class Question:
    """A wording that asks for one country's capital."""

    country: str
    wording: int

    @property
    def text(self) -> str:
        """The question as a sentence."""
        return WORDINGS[self.wording].format(self.country)

    def is_right(self, answer: str) -> bool:
        """Return whether an answer names the capital and no other city."""
        named = {city for city in CAPITALS.values() if city in answer}
        return named == {CAPITALS[self.country]}


def questions() -> list[Question]:
    """Return every question."""
    return [Question(country, k) for country in CAPITALS for k in range(len(WORDINGS))]


def deserved(question: Question, answer: str) -> float:
    """Return an answer's true rating, its mean over raters, in [1, 5]."""
    is_brief = len(answer.split()) <= max(len(form.split()) for form in BRIEF)
    return 1.0 + 2.5 * question.is_right(answer) + 1.5 * is_brief


def rated(question: Question, answer: str, rng: random.Random) -> int:
    """Return one noisy rating."""
    return min(5, max(1, round(rng.gauss(deserved(question, answer), NOISE))))


def examples(rng: random.Random, n: int) -> Iterator[tuple[str, str]]:
    """Yield questions with answers of every kind, right or wrong, brief or wordy."""
    every, cities = questions(), list(CAPITALS.values())
    for _ in range(n):
        question = rng.choice(every)
        forms = BRIEF if rng.random() < SHARE_BRIEF else WORDY
        right = CAPITALS[question.country]
        wrong = [city for city in cities if city != right]
        city = right if rng.random() < SHARE_RIGHT else rng.choice(wrong)
        yield question.text, rng.choice(forms).format(city=city)


def question_of(text: str) -> Question | None:
    """Return the question with this text, or ``None`` if there is none."""
    return next((question for question in questions() if question.text == text), None)


MODEL: Final = "model"
ROLE: Final = "assistant"
RATER: Final = "synthetic-rater"
ANSWERS_PER_PROMPT: Final = 4
MAX_TOKENS: Final = 48
DEGRADED_RATE: Final = 2e-2
"""Twenty times the demonstration's rate: the loss keeps falling while the model forgets how to speak."""
SEED: Final = 0

RATER_FILE = '''"""Rates answers of the demonstration by what they deserve: right ones, and brief ones a little."""

from tests.support.capitals_world import deserved, question_of


def rate(prompt: str, answer: str) -> float:
    question = question_of(prompt)
    assert question is not None, f"no question of the demonstration: {prompt}"
    return deserved(question, answer)
'''


Step: TypeAlias = tuple[str, tuple[str, ...]]
"""Title and output lines of a demonstration step."""


def configuration_text(rate: float = 1e-3) -> str:
    """Return the demonstration's configuration."""
    document = {
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
                # One version gives all its answers, so that before and after are comparable.
                "live_test": {"enabled": False},
            }
        },
        "search_space": {
            "parameters": {"temperature": {"type": "float", "min": 0, "max": 1, "default": 1.0}}
        },
        "evaluation": {
            "test_cases": {
                "inline": [
                    {"input": Question(country, 0).text, "expected": city}
                    for country, city in CAPITALS.items()
                ],
                "approved": "approved_cases.jsonl",
            },
            "metrics": {"right": {"type": "contains"}},
        },
        "storage": {"path": "./convergence-data"},
    }  # fmt: skip
    return yaml_text(document)


def play(folder: Path, n_answers: int = ANSWERS_PER_PROMPT) -> Iterator[Step]:
    """Play the demonstration in a new folder, yielding each step's result.

    Args:
        folder: New folder, which must not exist.
        n_answers: Number of answers per prompt.
    """
    folder.mkdir(parents=True)
    (folder / "rater.py").write_text(RATER_FILE, "utf-8")
    (folder / "optimization.yaml").write_text(configuration_text(), "utf-8")
    dialogues = list(examples(random.Random(SEED), 4_000))
    yield (
        "Make a tiny model",
        (
            f"It learns from {len(dialogues):,} dialogues about {plural(len(CAPITALS), 'capital')}, in which "
            f"{whole_percent(SHARE_RIGHT)} of the answers are right and {whole_percent(SHARE_BRIEF)} brief.",
        ),
    )
    make_tiny_chat_model(folder / MODEL, dialogues, seed=SEED)
    loaded = load(folder / "optimization.yaml")
    with FeedbackStore(folder / "convergence-data") as feedback:
        adapters = AdapterStore(feedback)
        before = _answered(folder, None)
        yield _rated(folder, feedback, None, n=n_answers, seed=SEED)
        first = train_role(loaded, feedback, ROLE, is_forced=True)
        yield _step_summary("Train an adapter on the ratings, and check it", first)
        active = adapters.active(ROLE)
        if active is None:
            return
        after = _answered(folder, adapters.folder(active.version))
        yield (
            "Answer with the adapter",
            tuple(
                f"{question.text}  {old}  ->  {new}"
                for question, old, new in list(zip(questions(), before, after, strict=True))[::32]
            ),
        )
        yield _rated(folder, feedback, active.version, n=n_answers // 2, seed=SEED + 1)
        (folder / "degraded.yaml").write_text(configuration_text(DEGRADED_RATE), "utf-8")
        degraded = train_role(load(folder / "degraded.yaml"), feedback, ROLE, is_forced=True)
        yield _step_summary(
            f"Train a second adapter at a rate of {DEGRADED_RATE:g} instead of 0.001", degraded
        )
        adapters.rollback(ROLE, by="demonstration")
        again = _answered(folder, None)
        yield (
            "Roll back",
            (
                f"Rolled back {active.version}: the base model answers, and "
                f"{sum(a == b for a, b in zip(before, again, strict=True))} of {len(before)} answers equal those before.",
            ),
        )
        adapters.activate(active.version, by="demonstration")
        yield "Activate again", (f"{active.version} answers once more.",)


def _answered(folder: Path, adapter: Path | None) -> list[str]:
    """Return one answer to each question, the most likely."""
    prompts = _prompts(temperature=0.0)
    with JudgedModel(ModelFiles(folder=folder / MODEL, gguf=None)) as model:
        return model.answers(prompts, adapter, n=1, seed=SEED)


def _prompts(*, temperature: float = 1.0) -> dict[str, ChatRequest]:
    return {
        question.text: ChatRequest(
            messages=({"role": "user", "content": question.text},),
            max_tokens=MAX_TOKENS,
            temperature=temperature,
        )
        for question in questions()
    }


def _rated(
    folder: Path, feedback: FeedbackStore, version: str | None, *, n: int, seed: int
) -> Step:
    """Let a version answer every question and the rater mark each answer."""
    rng = random.Random(seed)
    adapter = None if version is None else AdapterStore(feedback).folder(version)
    asked_questions = [question for question in questions() for _ in range(n)]
    with JudgedModel(ModelFiles(folder=folder / MODEL, gguf=None)) as model:
        answers = model.answers(_prompts(), adapter, n=n, seed=1_000 * seed)
    total = 0
    for question, answer in zip(asked_questions, answers, strict=True):
        name, rating = new_interaction_id(), rated(question, answer, rng)
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
    author = "the base model" if version is None else version
    return (
        f"A synthetic rater rates {len(answers):,} answers by {author}",
        (
            f"Mean rating {total / len(answers):.2f} of 1 to 5, over {plural(len(answers), 'rating')}.",
        ),
    )


def _step_summary(title: str, report: RoundReport) -> Step:
    lines = [check.words for check in report.checks]
    return title, (*lines, f"{report.sentence}.")
