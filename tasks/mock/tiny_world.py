"""Training world of the tiny language model: settings, outcomes, thoughts.

Trials are made of settings ``(model, temperature)``; each world has a hidden optimum (m*, t*), and the
outcome of a trial is one of ten bins,

    bin = clip(round(9 - 1.1 |t - t*| - 3 [m != m*] + N(0, .5)), 0, 9)

A text tells of one to three trials, then of a thought, then of a trial to be predicted:

    <bos> (hist m tX -> bY){1..3} think ... end cfg m tX -> bY

The thinker knows the optimum. An *oracle* says it, a *partial* thought says half of it, a *vague*
one sounds like a thought and says nothing, and ``none`` is no thought at all.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

MODELS = ("ant", "bee", "cat", "dog")
TEMPERATURES = tuple(f"t{i}" for i in range(11))
BINS = tuple(f"b{i}" for i in range(10))
LETTERS = tuple("ABCDEFGHIJ")

VOCABULARY: tuple[str, ...] = tuple(
    (
        "<pad> <bos> hist cfg -> think end best near avoid is with score high low maybe unclear "
        "? ask none say it will be <user> <assistant> Yes No "
        + " ".join((*LETTERS, *MODELS, *TEMPERATURES, *BINS))
    ).split()
)

Kind = Literal["oracle", "partial", "vague", "none"]
KINDS: tuple[Kind, ...] = ("oracle", "partial", "vague", "none")
SHARES = (0.35, 0.20, 0.15, 0.30)
"""How often each kind of thought occurs in the training texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A model and a temperature of the little world."""

    model: int
    temperature: int

    @property
    def words(self) -> tuple[str, str]:
        """The two words that name it."""
        return MODELS[self.model], TEMPERATURES[self.temperature]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldTrial:
    """A setting and the bin of its outcome."""

    setting: Setting
    outcome: int

    @property
    def words(self) -> tuple[str, ...]:
        """``m tX -> bY``."""
        return (*self.setting.words, "->", BINS[self.outcome])


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One text: what was tried, what was thought, what came of one more trial."""

    optimum: Setting
    history: tuple[WorldTrial, ...]
    kind: Kind
    thought: tuple[str, ...]
    trial: WorldTrial

    def prompt(self, thought: tuple[str, ...] | None = None) -> str:
        """Return the text up to the outcome, with another thought if one is given."""
        told = self.thought if thought is None else thought
        words = ["<bos>"]
        for past in self.history:
            words += ["hist", *past.words]
        words += ["think", *told, "end", "cfg", *self.trial.setting.words, "->"]
        return " ".join(words)

    @property
    def answer(self) -> str:
        """The word of the outcome."""
        return BINS[self.trial.outcome]

    @property
    def text(self) -> str:
        """The whole text."""
        return f"{self.prompt()} {self.answer}"


def any_setting(rng: random.Random) -> Setting:
    """Draw a setting, all being equally likely."""
    return Setting(model=rng.randrange(len(MODELS)), temperature=rng.randrange(len(TEMPERATURES)))


def outcome(setting: Setting, optimum: Setting, rng: random.Random) -> int:
    """Draw the bin of a trial."""
    mean = 9.0 - 1.1 * abs(setting.temperature - optimum.temperature)
    mean -= 3.0 * (setting.model != optimum.model)
    return min(9, max(0, round(mean + rng.gauss(0.0, 0.5))))


def think(optimum: Setting, kind: Kind, rng: random.Random) -> tuple[str, ...]:
    """Write the scripted thinker's thought about a world."""
    model, temperature = optimum.words
    match kind:
        case "oracle":
            return ("best", model, "near", temperature)
        case "partial" if rng.random() < 0.5:
            return ("best", model, "maybe", "unclear")
        case "partial":
            return ("best", "near", temperature, "maybe")
        case "vague":
            return ("it", "is", "unclear", "?", "maybe", "score", "high")
        case "none":
            return ("none",)


def stories(n: int, seed: int) -> Iterator[Story]:
    """Yield stories of as many worlds; the same seed tells the same stories."""
    rng = random.Random(seed)  # noqa: S311 - a world, not a secret
    for _ in range(n):
        optimum = any_setting(rng)
        kind = rng.choices(KINDS, SHARES)[0]
        history = tuple(_trial(optimum, rng) for _ in range(rng.randint(1, 3)))
        thought = think(optimum, kind, rng)
        trial = _trial(optimum, rng)
        yield Story(optimum=optimum, history=history, kind=kind, thought=thought, trial=trial)


def _trial(optimum: Setting, rng: random.Random) -> WorldTrial:
    setting = any_setting(rng)
    return WorldTrial(setting=setting, outcome=outcome(setting, optimum, rng))
