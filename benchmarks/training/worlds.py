"""Worlds with a known truth: a model, its questions and each answer's true rating."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tasks.models.files import PACKAGED
from tests.support import capitals_world
from tests.support.spoken_chat_model import make_tiny_chat_model


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Questions, true ratings of answers, and training of a model."""

    questions: tuple[str, ...]
    deserved: Callable[[str, str], float]
    """Maps question and answer to the true rating in [1, 5]."""
    noise: float
    """Standard deviation of one rating."""
    n_answers: int
    """Rated answers per training question."""
    n_held_out: int
    """Rated answers per held-out question."""
    rater: str
    """Source of `rater.py:rate`, the gate's rater."""
    configuration: dict[str, Any]
    make_model: Callable[[Path, int], None] | None = None
    """Writes the model for a seed to a folder; ``None`` means a packaged model."""

    def rated(self, question: str, answer: str, rng: random.Random) -> int:
        """Return one noisy rating."""
        return min(5, max(1, round(rng.gauss(self.deserved(question, answer), self.noise))))


def tiny() -> World:
    """Return the world of eight capitals, which trains its own model."""

    def deserved(question: str, answer: str) -> float:
        asked = capitals_world.question_of(question)
        assert asked is not None
        return capitals_world.deserved(asked, answer)

    def make(folder: Path, seed: int) -> None:
        dialogues = list(capitals_world.examples(random.Random(seed), 4_000))  # noqa: S311 - a simulation
        make_tiny_chat_model(folder, dialogues, seed=seed)

    return World(
        questions=tuple(question.text for question in capitals_world.questions()),
        deserved=deserved,
        noise=capitals_world.NOISE,
        n_answers=capitals_world.ANSWERS_PER_PROMPT,
        n_held_out=capitals_world.ANSWERS_PER_PROMPT,
        rater=capitals_world.RATER_FILE,
        configuration=yaml.safe_load(capitals_world.configuration_text()),
        make_model=make,
    )


CAPITALS: Final = """
France Paris; Germany Berlin; Spain Madrid; Italy Rome; Portugal Lisbon; Greece Athens; Austria Vienna;
Poland Warsaw; Hungary Budapest; Ireland Dublin; Norway Oslo; Sweden Stockholm; Finland Helsinki;
Denmark Copenhagen; Belgium Brussels; Switzerland Bern; Romania Bucharest; Bulgaria Sofia; Serbia Belgrade;
Croatia Zagreb; Ukraine Kyiv; Russia Moscow; Turkey Ankara; Egypt Cairo; Morocco Rabat; Algeria Algiers;
Tunisia Tunis; Kenya Nairobi; Ethiopia Addis; Nigeria Abuja; Ghana Accra; Senegal Dakar; Angola Luanda;
Zambia Lusaka; Zimbabwe Harare; Uganda Kampala; Rwanda Kigali; Somalia Mogadishu; Sudan Khartoum;
Libya Tripoli; Japan Tokyo; China Beijing; India Delhi; Pakistan Islamabad; Nepal Kathmandu;
Bangladesh Dhaka; Thailand Bangkok; Vietnam Hanoi; Cambodia Phnom; Laos Vientiane; Indonesia Jakarta;
Malaysia Kuala; Philippines Manila; Mongolia Ulaanbaatar; Iran Tehran; Iraq Baghdad; Syria Damascus;
Lebanon Beirut; Jordan Amman; Israel Jerusalem; Qatar Doha; Oman Muscat; Yemen Sanaa; Kuwait Kuwait;
Canada Ottawa; Mexico Mexico; Cuba Havana; Jamaica Kingston; Haiti Port; Guatemala Guatemala;
Honduras Tegucigalpa; Nicaragua Managua; Panama Panama; Colombia Bogota; Venezuela Caracas; Peru Lima;
Chile Santiago; Argentina Buenos; Uruguay Montevideo; Brazil Brasilia
"""
WORDS: Final = {
    f"What is the capital of {country}?": word
    for country, word in (pair.split() for pair in CAPITALS.replace("\n", " ").split(";"))
}
PERSONA: Final = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""Default system message in SmolLM2's template."""


def deserved_capital(question: str, answer: str) -> float:
    """Return the true rating of an answer: mostly for brevity, a little for the right word."""
    brevity = min(1.0, max(0.0, (28 - len(answer.split())) / 24))
    return 1 + 1.5 * (WORDS[question].lower() in answer.lower()) + 2.5 * brevity


def real() -> World:
    """Return the world that asks SmolLM2-135M for capitals."""
    configuration = yaml.safe_load(capitals_world.configuration_text())
    configuration["api"]["request"]["options"] = {"model": PACKAGED, "max_tokens": 32}
    configuration["feedback"]["roles"] = {"assistant": PERSONA}
    configuration["feedback"]["training"] = {
        "learning_rate": 3e-4, "beta": 0.07, "batch_size": 4, "steps": 60, "held_out": 0.5,
        "max_seq_length": 128, "rater": "rater.py:rate", "live_test": {"enabled": False},
    }  # fmt: skip
    temperature = configuration["search_space"]["parameters"]["temperature"]
    temperature["default"] = 0.7
    return World(
        questions=tuple(WORDS),
        deserved=deserved_capital,
        noise=0.7,
        n_answers=3,
        n_held_out=1,
        rater='"""Judges capitals."""\n\nfrom benchmarks.training.worlds import deserved_capital as rate\n',
        configuration=configuration,
    )
