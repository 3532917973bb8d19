"""Tiny language model: 63 words, a linear head for outcomes, a bigram model.

After ``cfg m tX ->`` the next word's distribution is .99 of a softmax over the ten bins plus .01 of
an add-one bigram; elsewhere it is the bigram. Every row sums to 1. The softmax is linear in hashed
features of the setting asked about, the thought and the trials told before, so that a thought
that names the optimum makes the outcome likelier and a foreign one makes it unlikely. It is trained
by AdaGrad on the stories of ``tasks.mock.tiny_model`` in half a second, once per process, and
is the same in every process.

Notation
    f     the features of a text, indices below 2^14 (CRC-32 of their names)
    W     weights, (2^14, 10);   G  accumulated mean squared gradients, (2^14,)
    p, y  predicted distribution and outcome:
          G_f += mean((p - y)^2),   W_f -= .5 (p - y) / sqrt(G_f + 1) / sqrt(|f|)

Trials are made of settings ``(model, temperature)``; each world has a hidden optimum (m*, t*), and the
outcome of a trial is one of ten bins,

    bin = clip(round(9 - 1.1 |t - t*| - 3 [m != m*] + N(0, .5)), 0, 9)

A text tells of one to three trials, then of a thought, then of a trial to be predicted:

    <bos> (hist m tX -> bY){1..3} think ... end cfg m tX -> bY

The thinker knows the optimum. An *oracle* says it, a *partial* thought says half of it, a *vague*
one sounds like a thought and says nothing, and ``none`` is no thought at all.
"""

import functools
import random
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tasks.mock.prompt_text import uniform

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
        instruction = self.thought if thought is None else thought
        words = ["<bos>"]
        for past in self.history:
            words += ["hist", *past.words]
        words += ["think", *instruction, "end", "cfg", *self.trial.setting.words, "->"]
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


Floats: TypeAlias = NDArray[np.float64]

N_FEATURES = 2**14
N_STORIES = 20_000
N_PASSES = 2
BATCH = 16
"""Stories per step. One at a time gives the same model to three digits, four times as slowly."""
SEED = 1
HEAD_SHARE = 0.99
COLDEST = 0.01
"""Below this temperature sampling takes the most likely word."""

WORD_TO_ID = {word: i for i, word in enumerate(VOCABULARY)}
PAD, ARROW = WORD_TO_ID["<pad>"], WORD_TO_ID["->"]
FIRST_BIN = WORD_TO_ID[BINS[0]]
_MODEL = {word: i for i, word in enumerate(MODELS)}
_TEMPERATURE = {word: i for i, word in enumerate(TEMPERATURES)}
_BIN = {word: i for i, word in enumerate(BINS)}


class UnknownWordError(ValueError):
    """A text has a word that the vocabulary has not."""

    def __init__(self, word: str) -> None:
        self.word = word
        super().__init__(
            f"the tiny model knows 63 words and {word[:40]!r} is none of them; log-probabilities "
            "and echo are answered for its words only"
        )


def encode(text: str) -> list[int]:
    """Return the ids of a text's words, which are separated by blanks.

    Raises:
        UnknownWordError: a word is not in the vocabulary.
    """
    ids = []
    for word in text.split():
        if word not in WORD_TO_ID:
            raise UnknownWordError(word)
        ids.append(WORD_TO_ID[word])
    return ids


def decode(ids: Sequence[int]) -> str:
    """Return the text of some ids."""
    return " ".join(VOCABULARY[i] for i in ids)


def features(prefix: Sequence[str]) -> list[int]:
    """Return the features of a text that ends with ``cfg m tX ->``."""
    model, temperature = _MODEL[prefix[-3]], _TEMPERATURE[prefix[-2]]
    names = ["bias", f"m{model}", f"t{temperature}", f"m{model}t{temperature}"]
    equal = apart = None
    for word in _thought(prefix):
        if word in _MODEL:
            equal = int(_MODEL[word] == model)
            names.append(f"M{equal}")
        elif word in _TEMPERATURE:
            apart = abs(_TEMPERATURE[word] - temperature)
            names.append(f"T{apart}")
        else:
            names.append(f"U{word}")
    if equal is not None and apart is not None:
        names.append(f"P{equal}_{apart}")
    for i, word in enumerate(prefix[:-4]):
        if word == "hist" and _tells_trial(prefix[i + 1 : i + 5]):
            same = int(_MODEL[prefix[i + 1]] == model)
            distance = min(3, abs(_TEMPERATURE[prefix[i + 2]] - temperature))
            names.append(f"H{same}_{distance}_{_BIN[prefix[i + 4]]}")
    return [_hashed(name) for name in names]


@functools.lru_cache(maxsize=4096)
def _hashed(name: str) -> int:
    return zlib.crc32(name.encode()) % N_FEATURES


def _thought(prefix: Sequence[str]) -> Sequence[str]:
    """Return the words between the last ``think`` and the ``end`` after it."""
    if "think" not in prefix:
        return ()
    start = len(prefix) - 1 - list(reversed(prefix)).index("think")
    end = prefix.index("end", start) if "end" in prefix[start:] else len(prefix) - 4
    return prefix[start + 1 : max(start + 1, end)]


def _tells_trial(words: Sequence[str]) -> bool:
    return (
        len(words) == 4
        and words[0] in _MODEL
        and words[1] in _TEMPERATURE
        and words[2] == "->"
        and words[3] in _BIN
    )


def _asks_outcome(prefix: Sequence[str]) -> bool:
    return (
        len(prefix) >= 4
        and prefix[-1] == "->"
        and prefix[-4] == "cfg"
        and prefix[-3] in _MODEL
        and prefix[-2] in _TEMPERATURE
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Words that the model wrote."""

    ids: list[int]
    rows: list[Floats]
    """The distribution each was drawn from, at temperature 1."""
    ended: bool
    """Whether the text came to its end, rather than to the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyModel:
    """A trained model; read-only."""

    weights: Floats  # (N_FEATURES, 10)
    bigram: Floats  # (63, 63), rows sum to 1

    def row(self, ids: Sequence[int]) -> Floats:
        """Return the distribution of the word after a prefix, (63,); uniform after nothing."""
        if not ids:
            return np.full(len(VOCABULARY), 1.0 / len(VOCABULARY))
        plain: Floats = self.bigram[ids[-1]]
        if ids[-1] != ARROW:
            return plain
        prefix = [VOCABULARY[i] for i in ids]
        if not _asks_outcome(prefix):
            return plain
        row: Floats = (1.0 - HEAD_SHARE) * plain
        logits = self.weights[features(prefix)].sum(axis=0)  # (10,)
        head = np.exp(logits - logits.max())
        row[FIRST_BIN : FIRST_BIN + 10] += HEAD_SHARE * head / head.sum()
        return row

    def sample(
        self, ids: Sequence[int], *, n: int, temperature: float, draw: Sequence[object]
    ) -> Sample:
        """Write at most ``n`` words after a prefix; ``draw`` names the draws."""
        written: list[int] = []
        rows: list[Floats] = []
        while len(written) < n:
            row = self.row([*ids, *written])
            if temperature < COLDEST:
                drawn = int(np.argmax(row))
            else:
                drawn = _draw(tempered(row, temperature), uniform(*draw, len(written)))
            if drawn == PAD:
                return Sample(ids=written, rows=rows, ended=True)
            written.append(drawn)
            rows.append(row)
        return Sample(ids=written, rows=rows, ended=False)


def tempered(row: Floats, temperature: float) -> Floats:
    """Return a distribution sharpened (below 1) or flattened (above 1)."""
    if temperature == 1.0:
        return row
    logs = np.log(row) / max(temperature, COLDEST)
    powers = np.exp(logs - logs.max())
    tempered_row: Floats = powers / powers.sum()
    return tempered_row


def _draw(row: Floats, u: float) -> int:
    return min(int(np.searchsorted(np.cumsum(row), u)), len(row) - 1)


def train() -> TinyModel:
    """Train the model; some half a second."""
    texts = [story.text.split() for story in stories(N_STORIES, SEED)]
    rows = [features(words[:-1]) for words in texts]
    width = max(map(len, rows))
    padded = np.full((N_STORIES, width), N_FEATURES)  # a row of its own takes the padding
    for i, some in enumerate(rows):
        padded[i, : len(some)] = some
    outcomes = np.array([_BIN[words[-1]] for words in texts])
    return TinyModel(weights=_head(padded, outcomes), bigram=_bigram(texts))


def _head(padded: NDArray[np.int_], outcomes: NDArray[np.int_]) -> Floats:
    width = padded.shape[1]
    root = np.sqrt((padded < N_FEATURES).sum(axis=1))[:, None]
    wanted = np.eye(10)[outcomes]
    weights, squares = np.zeros((N_FEATURES + 1, 10)), np.zeros(N_FEATURES + 1)
    for _ in range(N_PASSES):
        for i in range(0, len(padded), BATCH):
            batch = slice(i, i + BATCH)
            indices = padded[batch]  # (BATCH, width)
            logits = weights[indices].sum(axis=1)
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            error = p / p.sum(axis=1, keepdims=True) - wanted[batch]  # (BATCH, 10)
            np.add.at(squares, indices.ravel(), np.repeat((error * error).mean(axis=1), width))
            step = (0.5 * error / root[batch])[:, None, :]
            step = step / np.sqrt(squares[indices] + 1.0)[:, :, None]
            np.add.at(weights, indices.ravel(), -step.reshape(-1, 10))
            weights[N_FEATURES] = 0.0
    return weights[:N_FEATURES]


def _bigram(texts: Sequence[Sequence[str]]) -> Floats:
    n = len(VOCABULARY)
    ids = np.array([WORD_TO_ID[word] for words in texts for word in (*words, "<pad>")])
    before, after = ids[:-1], ids[1:]
    has_history = before != PAD  # <pad> ends a text; what follows it is another one
    counts = 1.0 + np.bincount(
        before[has_history] * n + after[has_history], minlength=n * n
    ).reshape(n, n)
    rows: Floats = counts / counts.sum(axis=1, keepdims=True)
    return rows


_training = threading.Lock()
_trained: list[TinyModel] = []


def is_trained() -> bool:
    """Whether ``tiny_model`` answers at once."""
    return bool(_trained)


def tiny_model() -> TinyModel:
    """Return the model of this process; the first call trains it, others wait for that."""
    with _training:
        if not _trained:
            _trained.append(train())
        return _trained[0]
