"""Imperfect writer of prompts: edits succeed half the time, and every one may do harm.

It reads the first two symptoms among the failures that it is shown and adds the sentence of each with probability ``SUCCESS``; where it fails it adds a sentence that says nothing. Every edit loses another sentence of
the parent with probability ``LOSS``, and puts a new one at a random place half the time. Named operators edit
what they stand for. ``noise`` writes sentences that say nothing, and ``lies`` takes out what is there.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import numpy as np

from benchmarks.prompts.world import PROPERTIES, START, property_of, sentences_of

SUCCESS: Final = 0.5
LOSS: Final = 0.2
MOST_FIXED: Final = 2
"""Symptoms that one edit takes up, the first ones that it is shown."""
Temper: TypeAlias = Literal["honest", "noise", "lies"]

FILLERS: Final = (
    "Please take this seriously.",
    "Our customers matter to us.",
    "Take a deep breath.",
    "This is important for the company.",
    "Be excellent.",
    "Thank you for your help.",
    "Keep a positive attitude at all times.",
    "We rely on your judgement.",
)
OF_OPERATOR: Final = {
    "try-catch-style": ("fallback", "language"),
    "expansion": ("terms", "example", "role"),
    "constraint-addition": ("facts", "format", "priority"),
    "task-decomposition": ("steps", "check"),
}
_SYMPTOM: Final = {p.symptom: name for name, p in PROPERTIES.items()}
_AT_END: Final = 0.5


def symptoms_in(text: str) -> list[str]:
    """Return the properties whose symptoms a text names, each once, the first named first."""
    found = {at: name for symptom, name in _SYMPTOM.items() if (at := text.find(symptom)) >= 0}
    return [found[at] for at in sorted(found)]


def revise(
    parent: str,
    wanted: Sequence[str],
    rng: np.random.Generator,
    *,
    temper: Temper = "honest",
) -> str:
    """Return an edit of a prompt.

    Args:
        parent: the prompt.
        wanted: properties that the failures lack.
        rng: of the writer.
        temper: how honest it is.
    """
    listed = sentences_of(parent) or [START]
    if temper == "noise":
        return " ".join([*listed, _filler(rng)])
    if temper == "lies":
        kept = [one for one in listed if property_of(one) is None or rng.random() < 0.5]
        return " ".join([*(kept or [START]), _filler(rng)])
    there = {property_of(one) for one in listed}
    for name in wanted:
        if name in there:
            continue
        sentence = _filler(rng)
        if rng.random() < SUCCESS:
            sentence = str(rng.choice(PROPERTIES[name].sentences))
        at = len(listed) if rng.random() < _AT_END else int(rng.integers(1, len(listed) + 1))
        listed.insert(at, sentence)
    return " ".join(_lose(listed, rng))


def merge(first: str, second: str, rng: np.random.Generator) -> str:
    """Return a prompt of two: the first's sentences, and each other one of the second half the time."""
    listed = sentences_of(first)
    there = {property_of(one) for one in listed}
    for one in sentences_of(second):
        name = property_of(one)
        if name is not None and name not in there and rng.random() < SUCCESS:
            listed.insert(int(rng.integers(1, len(listed) + 1)), one)
    return " ".join(_lose(listed, rng))


def reduce(parent: str, rng: np.random.Generator) -> str:
    """Return a prompt without some of its filler, and at times without a sentence that mattered."""
    listed = sentences_of(parent)
    kept = [
        one
        for i, one in enumerate(listed)
        if i == 0 or property_of(one) is not None or rng.random() >= SUCCESS
    ]
    return " ".join(_lose(kept, rng))


def written(
    operator: str,
    parents: Sequence[str],
    shown: str,
    rng: np.random.Generator,
    temper: Temper = "honest",
) -> str:
    """Return what the writer answers to a request of an operator.

    Args:
        operator: its name.
        parents: one prompt, or two to merge.
        shown: text of the failures.
        rng: of the writer.
        temper: how honest it is.
    """
    parent = parents[0] if parents else START
    if temper != "honest":
        return revise(parent, (), rng, temper=temper)
    if operator == "merge" and len(parents) > 1:
        return merge(parents[0], parents[1], rng)
    if operator == "context-reduction":
        return reduce(parent, rng)
    if operator in OF_OPERATOR:
        there = {property_of(one) for one in sentences_of(parent)}
        lacking = [name for name in OF_OPERATOR[operator] if name not in there]
        return revise(parent, [str(rng.choice(lacking))] if lacking else [], rng)
    return revise(parent, symptoms_in(shown)[:MOST_FIXED], rng)


def _lose(listed: list[str], rng: np.random.Generator) -> list[str]:
    if len(listed) > 2 and rng.random() < LOSS:
        listed.pop(int(rng.integers(1, len(listed))))
    return listed


def _filler(rng: np.random.Generator) -> str:
    return str(rng.choice(FILLERS))


_OPERATOR: Final = re.compile(r"<operator>(.*?)</operator>", re.DOTALL)
_PROMPT: Final = re.compile(r"<prompt>(.*?)</prompt>", re.DOTALL)
_FAILURES: Final = re.compile(r"<failures>(.*)</failures>", re.DOTALL)
_N_PROMPTS: Final = re.compile(r"^Write (\d+) prompts ", re.MULTILINE)


def answer_request(content: str, rng: np.random.Generator, temper: Temper = "honest") -> str:
    """Return the writer's answer to a request of the engine."""
    operator, failures = _OPERATOR.search(content), _FAILURES.search(content)
    wanted = _N_PROMPTS.search(content)
    texts = [
        written(
            operator[1].strip() if operator else "reflect",
            _PROMPT.findall(content),
            failures[1] if failures else "",
            rng,
            temper,
        )
        for _ in range(int(wanted[1]) if wanted else 1)
    ]
    return "<diagnosis>as shown</diagnosis>" + "".join(
        f"<prompt>{text}</prompt>" for text in texts
    )
