"""Small world of thoughts: five topics have a colour each; whoever reads a note believes it.

A model that was made here writes notes that name any colour, and predicts the colour of a note, or any where
there is none. So the right note is worth ln(5 (.6 + .4/5)) = 1.2 nats, and a wrong one costs .9.
"""

import random
from pathlib import Path

from tasks.models.files import ModelFiles
from tasks.training.jobs import TrainingRow

COLOURS = {"rain": "red", "bread": "blue", "chess": "green", "bees": "black", "wool": "white"}
WORDINGS = (
    "Think about {}.",
    "What of {}?",
    "Note something on {}.",
    "{}: your thought?",
    "On {}, a note.",
    "Tell me of {}.",
    "A thought on {}?",
    "Say what {} is.",
    "And {}?",
    "Now note {}.",
    "Write of {}.",
    "Some words on {}?",
    "What does {} bring?",
    "{}, please.",
    "Give a note: {}.",
    "Do you know {}?",
)
TRUST = 0.6


def thinking(topic: str, wording: int) -> str:
    return WORDINGS[wording].format(topic)


def predicting(topic: str) -> str:
    return f"{topic}. Notes: {{thought}}"


def dialogues(n: int, n_wordings: int, seed: int = 0) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    colours, found = list(COLOURS.values()), []
    for _ in range(n):
        topic, noted = rng.choice(list(COLOURS)), rng.choice(colours)
        kind = rng.randrange(3)
        if kind == 0:
            found.append((thinking(topic, rng.randrange(n_wordings)), f"Maybe {noted}."))
        elif kind == 1:
            told = noted if rng.random() < TRUST else rng.choice(colours)
            found.append((predicting(topic).format(thought=f"Maybe {noted}."), told))
        else:
            found.append((predicting(topic).format(thought="(none)"), noted))
    return found


def make(folder: Path, n_wordings: int = 10) -> ModelFiles:
    """Write a model of this world, which has read the first wordings; some seconds."""
    from tasks.models.tiny_chat_model import make_tiny_chat_model

    make_tiny_chat_model(folder, dialogues(6_000, n_wordings))
    return ModelFiles(folder=folder, gguf=None)


def rows(wordings: tuple[int, ...], colours: dict[str, list[str]]) -> tuple[TrainingRow, ...]:
    """Return a row for each topic, wording and colour that follows it."""
    return tuple(
        TrainingRow(
            messages=({"role": "user", "content": thinking(topic, wording)},),
            predicts=predicting(topic),
            response=colour,
            key=f"{topic} {wording} {colour}",
        )
        for topic in COLOURS
        for wording in wordings
        for colour in colours[topic]
    )


TRUE = {topic: [colour] for topic, colour in COLOURS.items()}
ANY = {topic: list(COLOURS.values()) for topic in COLOURS}
"""Every colour follows every topic: there is nothing to say."""
