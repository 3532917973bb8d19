"""Planted prompt world: a mock model whose answers depend on ten properties of its prompt.

A prompt is read sentence by sentence. Each property is recognised by a phrase, whatever stands around it; a
sentence with none is filler. The mean quality of an answer is

    q(prompt, case) = base + sum_p a[p, kind(case)] + sum_(p, r) b[p, r] + order - filler - length

where ``a`` are effects of properties that are there, larger for the kind of case that needs them; ``b`` are
interactions: ``steps`` and ``check`` hurt alone and help together, ``fallback`` confuses without
``terms``; ``order`` rewards the format rule at the end, the role at the beginning, and steps before their check.
What one answer is worth is q plus normal noise (sd ``NOISE_SD``), cut to [0, 1]. An answer names the symptom of
one property that is lacking, as a bad answer does: the one that its kind of case needs most.

The optimum is found by trying all 1,024 sets of properties in their best order.
"""

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

NOISE_SD: Final = 0.2
BASE: Final = 0.16
FILLER: Final = 0.02
"""Lost for each sentence without a property."""
LENGTH: Final = 0.00004
"""Lost for each character beyond ``FREE_LENGTH``."""
FREE_LENGTH: Final = 600
START: Final = "Sort the customer's message into one of our departments."
OTHER_START: Final = "Please read the message below and tell us who should take care of it."
N_SEARCH: Final = 40
N_ASKED: Final = 200
"""Evaluations of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One property of a prompt."""

    phrase: str
    """By which it is recognised."""
    sentences: tuple[str, ...]
    """How it may be written."""
    symptom: str
    """What an answer shows where it is lacking."""
    effect: float


PROPERTIES: Final[Mapping[str, Property]] = {
    "role": Property(
        phrase="front desk",
        sentences=(
            "You work at the front desk of a large shop.",
            "Act as the front desk clerk would.",
        ),
        symptom="the tone is that of a stranger",
        effect=0.03,
    ),
    "terms": Property(
        phrase="stands for",
        sentences=(
            "Billing stands for money, delivery for parcels, repair for broken goods.",
            "Repair stands for broken goods, billing for money, delivery for parcels.",
        ),
        symptom="two departments were mixed up",
        effect=0.07,
    ),
    "facts": Property(
        phrase="only what the message says",
        sentences=(
            "Use only what the message says.",
            "Rely on only what the message says, and on nothing else.",
        ),
        symptom="a fact was made up",
        effect=0.07,
    ),
    "steps": Property(
        phrase="step by step",
        sentences=("Go step by step: find the wish, then the department.", "Work step by step."),
        symptom="the second wish of the message was missed",
        effect=-0.05,
    ),
    "check": Property(
        phrase="check your choice",
        sentences=(
            "Then check your choice against the message.",
            "Finally check your choice once more.",
        ),
        symptom="the choice contradicts the message",
        effect=-0.05,
    ),
    "example": Property(
        phrase="for instance",
        sentences=(
            "A lost parcel, for instance, goes to delivery.",
            "So, for instance, a double charge goes to billing.",
        ),
        symptom="an ordinary message was sorted oddly",
        effect=0.06,
    ),
    "fallback": Property(
        phrase="if no department fits",
        sentences=("If no department fits, say human.", "Say human if no department fits."),
        symptom="a department was guessed for a message that fits none",
        effect=0.02,
    ),
    "language": Property(
        phrase="whatever its language",
        sentences=("Read the message whatever its language.", "Answer whatever its language is."),
        symptom="a foreign message was not understood",
        effect=0.05,
    ),
    "priority": Property(
        phrase="the first wish counts",
        sentences=(
            "If there are several, the first wish counts.",
            "Of two wishes the first wish counts.",
        ),
        symptom="of two wishes the lesser one was taken",
        effect=0.05,
    ),
    "format": Property(
        phrase="name of the department alone",
        sentences=(
            "Answer with the name of the department alone.",
            "Write the name of the department alone.",
        ),
        symptom="the answer is a long sentence",
        effect=0.09,
    ),
}
NAMES: Final = tuple(PROPERTIES)
INTERACTIONS: Final[Mapping[tuple[str, str], float]] = {
    ("steps", "check"): 0.22,
    ("example", "format"): 0.06,
    ("terms", "facts"): 0.05,
    ("terms", "fallback"): 0.08,
    ("fallback", "facts"): -0.03,
    ("language", "example"): -0.03,
    ("role", "priority"): 0.03,
}
ALONE: Final = {"fallback": ("terms", -0.05)}
"""Property → what it needs, and what it costs without."""
OWN: Final = 2.0
"""How many times a property's effect is larger for the kind of case that needs it."""
KINDS: Final = tuple(NAMES)
"""One kind of case for each property."""
_SHOTS: Final = "<shots>"
"""Demonstrations begin here; they stand for the property ``example``."""
_SENTENCE: Final = re.compile(r"[^.!?\n]+[.!?]?")


def instruction_of(text: str) -> str:
    """Return a prompt without the demonstrations at its end."""
    return text.partition(_SHOTS)[0]


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a prompt, demonstrations left out."""
    text = instruction_of(text)
    return [found for one in _SENTENCE.findall(text) if (found := one.strip())]


def property_of(sentence: str) -> str | None:
    """Return which property a sentence has; ``None``: it is filler, or the task itself."""
    lowered = sentence.lower()
    return next((n for n, p in PROPERTIES.items() if p.phrase in lowered), None)


def properties_of(text: str) -> list[str]:
    """Return the properties of a prompt in the order of their first sentences."""
    found = [name for one in sentences_of(text) if (name := property_of(one)) is not None]
    return [*dict.fromkeys(found)]


def order_gain(ordered: Sequence[str]) -> float:
    """Return what the order of properties is worth."""
    gain = 0.0
    if ordered and ordered[-1] == "format":
        gain += 0.05
    if ordered and ordered[0] == "role":
        gain += 0.02
    if (
        "steps" in ordered
        and "check" in ordered
        and ordered.index("check") < ordered.index("steps")
    ):
        gain -= 0.12
    return gain


@cache
def quality(text: str, kind: str | None = None) -> float:
    """Return the mean quality of answers to a kind of case; ``None``: over all kinds."""
    if kind is None:
        return float(np.mean([quality(text, one) for one in KINDS]))
    listed = sentences_of(text)
    ordered = properties_of(text)
    there = set(ordered) | ({"example"} if _SHOTS in text else set())
    n_filler = max(0, len(listed) - len(ordered) - 1)  # one sentence is the task
    value = BASE + order_gain(ordered) - FILLER * n_filler
    value -= LENGTH * max(0, len(instruction_of(text)) - FREE_LENGTH)
    rest = (len(KINDS) - OWN) / (len(KINDS) - 1)  # so that the mean over kinds is the effect
    for name in there:
        value += PROPERTIES[name].effect * (OWN if name == kind else rest)
    value += sum(gain for pair, gain in INTERACTIONS.items() if there.issuperset(pair))
    value -= sum(
        -cost for name, (need, cost) in ALONE.items() if name in there and need not in there
    )
    return float(np.clip(value, 0.02, 0.98))


@cache
def best_text() -> str:
    """Return a prompt of the highest mean quality."""
    best, found = -1.0, START
    for n in range(len(NAMES) + 1):
        for chosen in itertools.combinations(NAMES, n):  # NAMES stand in their best order
            text = " ".join([START, *(PROPERTIES[name].sentences[-1] for name in chosen)])
            if quality(text) > best:
                best, found = quality(text), text
    return found


def gap_closed(text: str, start: str = START) -> float:
    """Return which share of the way from the start to the optimum a prompt has gone."""
    low, high = quality(start), quality(best_text())
    return (quality(text) - low) / (high - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldCase:
    """One test case."""

    case_id: str
    kind: str
    message: str


def cases(n: int = N_SEARCH, *, first: int = 0) -> tuple[WorldCase, ...]:
    """Return cases, their kinds in turn; texts say nothing that a prompt could copy."""
    return tuple(
        WorldCase(
            case_id=f"m{first + i:03d}",
            kind=KINDS[i % len(KINDS)],
            message=f"message {first + i}: {_words(first + i)}",
        )
        for i in range(n)
    )


def _words(i: int) -> str:
    digest = hashlib.sha256(f"words {i}".encode()).hexdigest()
    return " ".join(digest[j : j + 6] for j in range(0, 30, 6))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldAnswer:
    """An answer of the mock."""

    score: float
    text: str
    reason: str
    """Empty where the answer is good."""


class World:
    """The mock model of one run. It counts its requests."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._n_asked: dict[tuple[str, str], int] = {}
        self.n_calls = 0

    def ask(self, text: str, case: WorldCase, shift: float = 0.0) -> WorldAnswer:
        """Answer one case; asked again it draws other noise.

        Args:
            text: the prompt.
            case: the case.
            shift: added to the quality, e.g. by other parameters.
        """
        key = (text, case.case_id)
        n = self._n_asked[key] = self._n_asked.get(key, 0) + 1
        self.n_calls += 1
        digest = hashlib.sha256(f"{self._seed} {n} {case.case_id} {text}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        score = quality(text, case.kind) + shift + NOISE_SD * rng.normal()
        score = float(np.clip(score, 0.0, 1.0))
        lacking = missing(text, case.kind)
        reason = PROPERTIES[lacking].symptom if lacking and score < 0.8 else ""
        return WorldAnswer(score=score, text=f"answer to {case.message}", reason=reason)


def missing(text: str, kind: str) -> str | None:
    """Return the lacking property that a kind of case would show; ``None``: nothing is lacking."""
    there = set(properties_of(text)) | ({"example"} if _SHOTS in text else set())
    start = NAMES.index(kind)
    return next((n for n in (*NAMES[start:], *NAMES[:start]) if n not in there), None)
