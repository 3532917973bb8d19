"""Small world of questions, answers and a rater, whose truth is known.

Eight countries have a capital; sixteen wordings ask for it. An answer is right or wrong, and brief or wordy. A
model that learned from all kinds of answers alike gives each; the rater likes right ones, and brief ones
a little.

    rating = round(1 + 2.5 [right] + 1.5 [brief] + N(0, .5)), within 1 to 5
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

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
"""Of the answers that the model learns from."""
SHARE_BRIEF: Final = 0.4
NOISE: Final = 0.5
"""Standard deviation of a rating around what the answer deserves."""


@dataclass(frozen=True, slots=True)
class Question:
    """A wording that asks for one country's capital."""

    country: str
    wording: int

    @property
    def text(self) -> str:
        """What is asked."""
        return WORDINGS[self.wording].format(self.country)

    def is_right(self, answer: str) -> bool:
        """Return whether an answer names the capital and no other city."""
        named = {city for city in CAPITALS.values() if city in answer}
        return named == {CAPITALS[self.country]}


def questions() -> list[Question]:
    """Return every question."""
    return [Question(country, k) for country in CAPITALS for k in range(len(WORDINGS))]


def deserved(question: Question, answer: str) -> float:
    """Return the rating that an answer deserves, in [1, 5]: its mean over raters."""
    is_brief = len(answer.split()) <= max(len(form.split()) for form in BRIEF)
    return 1.0 + 2.5 * question.is_right(answer) + 1.5 * is_brief


def rated(question: Question, answer: str, rng: random.Random) -> int:
    """Return one noisy rating."""
    return min(5, max(1, round(rng.gauss(deserved(question, answer), NOISE))))


def examples(rng: random.Random, n: int) -> Iterator[tuple[str, str]]:
    """Yield questions with answers of every kind, right or wrong, brief or wordy."""
    every, cities = questions(), list(CAPITALS.values())
    for _ in range(n):
        asked = rng.choice(every)
        forms = BRIEF if rng.random() < SHARE_BRIEF else WORDY
        right = CAPITALS[asked.country]
        wrong = [city for city in cities if city != right]
        city = right if rng.random() < SHARE_RIGHT else rng.choice(wrong)
        yield asked.text, rng.choice(forms).format(city=city)


def question_of(text: str) -> Question | None:
    """Return the question that a text is; ``None``: it is none of this world."""
    return next((one for one in questions() if one.text == text), None)
