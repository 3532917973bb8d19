"""Planted prompt worlds: a mock model whose answers depend on its prompt's properties.

The mock reads a prompt sentence by sentence and recognises each property by a phrase. A sentence without one is
filler. The mean quality of an answer is

    q(prompt, case) = base + sum_p a[p, kind(case)] + sum_(p, r) b[p, r] + order - filler - length

where ``a`` are effects of the prompt's properties, larger for the kind of case that needs them. An answer's score is
q plus normal noise (sd ``NOISE_SD``), clipped to [0, 1]. An answer shows the symptom of one missing property: the one
that its kind of case needs most.

``shop``: ten properties, the same in every run. Nearly all help, so guessing works as well as reading failures.
``b`` are interactions: ``steps`` and ``check`` hurt alone and help together, ``fallback`` confuses without ``terms``.
``order`` rewards the format rule at the end, the role at the beginning, and steps before their check.

``letters``: forty properties, of which a run needs eight, drawn by its seed. The others cost as much as filler. Only
failures reveal the needed ones. There are no interactions, and demonstrations have no value.

An exhaustive search over sets of helpful properties in their best order finds the optimum.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

NOISE_SD: Final = 0.2
BASE: Final = 0.16
FILLER: Final = 0.02
"""Penalty per sentence without a property."""
LENGTH: Final = 0.00004
"""Penalty per character beyond ``FREE_LENGTH``."""
FREE_LENGTH: Final = 600
N_ASKED: Final = 200
"""Evaluations per run."""
N_NEEDED: Final = 8
"""Number of properties that a run of ``letters`` needs."""
NEEDED_EFFECT: Final = 0.08


class Property(NamedTuple):
    """One prompt property: its phrase, wordings, symptom when missing, and effect."""

    phrase: str
    sentences: tuple[str, ...]
    symptom: str
    effect: float


_PLANTED: Final = json.loads(Path(__file__).with_name("planted.json").read_text("utf-8"))
SHOP: Final[Mapping[str, Property]] = {n: Property(**p) for n, p in _PLANTED["shop"].items()}
INTERACTIONS: Final[Mapping[tuple[str, str], float]] = {
    (one, other): gain for one, other, gain in _PLANTED["interactions"]
}
ALONE: Final = {"fallback": ("terms", -0.05)}
"""Property → the property it requires, and its cost without it."""
OWN: Final = 2.0
"""Factor of a property's effect for the kind of case that needs it."""
LETTERS: Final[Sequence[str]] = _PLANTED["letters"]
"""Possible requirements for a letter."""
_SHOTS: Final = "<shots>"
"""Start of the demonstrations, which count as the property ``example``."""
_SENTENCE: Final = re.compile(r"[^.!?\n]+[.!?]?")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class World:
    """Planted truth, the same for every optimizer with the same seed."""

    start: str
    other_start: str
    properties: Mapping[str, Property]
    kinds: tuple[str, ...]
    """One kind of case per helpful property."""

    def property_of(self, sentence: str) -> str | None:
        """Return a sentence's property, or ``None`` for filler and the task itself."""
        lowered = sentence.lower()
        return next((n for n, p in self.properties.items() if p.phrase in lowered), None)

    def ordered(self, text: str) -> list[str]:
        """Return a prompt's properties in the order of their first sentences."""
        names = [self.property_of(sentence) for sentence in sentences_of(text)]
        return [*dict.fromkeys(name for name in names if name is not None)]

    def held(self, text: str) -> set[str]:
        """Return a prompt's properties, including its demonstrations."""
        shown = {"example"} & {*self.properties} if _SHOTS in text else set()
        return {*self.ordered(text)} | shown

    def quality(self, text: str, kind: str | None = None) -> float:
        """Return the mean quality of answers to a kind of case; ``None`` averages all kinds."""
        if kind is None:
            return float(np.mean([self.quality(text, each) for each in self.kinds]))
        ordered, there = self.ordered(text), self.held(text)
        n_filler = max(0, len(sentences_of(text)) - len(ordered) - 1)  # one sentence is the task
        value = BASE + order_gain(ordered) - FILLER * n_filler
        value -= LENGTH * max(0, len(instruction_of(text)) - FREE_LENGTH)
        rest = (len(self.kinds) - OWN) / (len(self.kinds) - 1)  # the mean over kinds is the effect
        for name in there:
            is_needed = name in self.kinds
            value += self.properties[name].effect * (
                1.0 if not is_needed else OWN if name == kind else rest
            )
        value += sum(gain for pair, gain in INTERACTIONS.items() if there.issuperset(pair))
        value += sum(
            cost for name, (need, cost) in ALONE.items() if name in there and need not in there
        )
        return float(np.clip(value, 0.02, 0.98))

    def gap_closed(self, text: str) -> float:
        """Return a prompt's share of the gap between start and optimum."""
        low, high = self.quality(self.start), best_quality(self)
        return (self.quality(text) - low) / (high - low)

    def missing(self, text: str, kind: str) -> str | None:
        """Return the missing property that a kind of case reveals, or ``None`` if none is missing."""
        there, start = self.held(text), self.kinds.index(kind)
        return next(
            (n for n in (*self.kinds[start:], *self.kinds[:start]) if n not in there), None
        )

    def cases(self, n: int) -> tuple["WorldCase", ...]:
        """Return cases with kinds in turn. Their texts hold nothing that a prompt could copy."""
        return tuple(
            WorldCase(f"m{i:03d}", self.kinds[i % len(self.kinds)], f"message {i}: {_words(i)}")
            for i in range(n)
        )


@cache
def best_quality(world: World) -> float:
    """Return the highest mean quality of a prompt."""
    kinds = world.kinds  # properties are in their best order
    sets = [itertools.combinations(kinds, n) for n in range(len(kinds) + 1)]
    sentences = {name: world.properties[name].sentences[-1] for name in kinds}
    return max(
        world.quality(" ".join([world.start, *(sentences[name] for name in names)]))
        for names in itertools.chain.from_iterable(sets)
    )


@cache
def planted(name: str, seed: int) -> World:
    """Return the world ``shop`` or ``letters``."""
    if name == "shop":
        return SHOP_WORLD
    needed = {*np.random.default_rng([seed, 7]).choice(LETTERS, N_NEEDED, replace=False).tolist()}
    return World(
        start="Answer the customer's message with a letter.",
        other_start="Please write back to the customer.",
        properties={
            name: Property(
                name,
                (f"Give the {name}.", f"Never leave out the {name}."),
                f"the {name} is lacking",
                NEEDED_EFFECT if name in needed else -FILLER,
            )
            for name in LETTERS
        },
        kinds=tuple(name for name in LETTERS if name in needed),
    )


SHOP_WORLD: Final = World(
    start="Sort the customer's message into one of our departments.",
    other_start="Please read the message below and tell us who should take care of it.",
    properties=SHOP,
    kinds=tuple(SHOP),
)


def instruction_of(text: str) -> str:
    """Return a prompt without its final demonstrations."""
    return text.partition(_SHOTS)[0]


def sentences_of(text: str) -> list[str]:
    """Return a prompt's sentences without its demonstrations."""
    parts = _SENTENCE.findall(instruction_of(text))
    return [sentence for part in parts if (sentence := part.strip())]


def order_gain(ordered: Sequence[str]) -> float:
    """Return the gain from the order of properties."""
    gain = 0.05 * (ordered[-1:] == ["format"]) + 0.02 * (ordered[:1] == ["role"])
    is_reversed = {"steps", "check"} <= {*ordered} and (
        ordered.index("check") < ordered.index("steps")
    )
    return gain - 0.12 * is_reversed


class WorldCase(NamedTuple):
    """One test case."""

    case_id: str
    kind: str
    message: str


def _words(i: int) -> str:
    digest = hashlib.sha256(f"words {i}".encode()).hexdigest()
    return " ".join(digest[j : j + 6] for j in range(0, 30, 6))


class WorldAnswer(NamedTuple):
    """Answer of the mock."""

    score: float
    text: str
    reason: str
    """Missing property's symptom; empty for a good answer."""


class Mock:
    """Mock model of one run that counts its requests."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self._seed = seed
        self._n_asked: dict[tuple[str, str], int] = {}
        self.n_calls = 0

    def ask_all(self, text: str, cases: Sequence[WorldCase]) -> list[WorldAnswer]:
        """Answer cases."""
        return [self.ask(text, case) for case in cases]

    def ask(self, text: str, case: WorldCase) -> WorldAnswer:
        """Answer one case. Every call draws new noise."""
        key = (text, case.case_id)
        n = self._n_asked[key] = self._n_asked.get(key, 0) + 1
        self.n_calls += 1
        digest = hashlib.sha256(f"{self._seed} {n} {case.case_id} {text}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        score = self.world.quality(text, case.kind) + NOISE_SD * rng.normal()
        score = float(np.clip(score, 0.0, 1.0))
        lacking = self.world.missing(text, case.kind)
        reason = self.world.properties[lacking].symptom if lacking and score < 0.8 else ""
        return WorldAnswer(score, f"answer to {case.message}", reason)
