"""Probability channels: distributions of outcomes from log-probabilities.

=============  =====================================================================
``chat_echo``  log-probabilities of the options as the assistant's answer, in the model's own template
``echo``       log-probabilities of the options, fed in after the prompt
``chat``       log-probabilities of the next token, of which the options are among
=============  =====================================================================

An answer that cannot be read voids its subject; a proxy is never made up in its place.
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from convergence_core.errors import EvaluationFault
from convergence_core.ports import Completion
from convergence_core.records import Json
from tasks.calls.metric_calls import PaidCall
from tasks.rlp.model_calls import Model, ThoughtAsker, UnreadableAnswerError
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

Estimator: TypeAlias = Literal["chat_echo", "echo", "chat", "verdict"]
"""Probability channels, best first."""
TINY: Final = 1e-6
"""Least probability of an option: no channel can tell never from seldom."""
TAIL: Final = 24
"""Tokens at the end of a prompt that are kept: more than an option has."""
TOP: Final = 20
"""Most log-probabilities that a chat answers with."""
CENSORED: Final = -9999.0
"""Written by some servers for "outside of the top"."""


class Options(Protocol):
    """Answers to a question, and prompts that show whether a server tells their probability."""

    @property
    def options(self) -> tuple[str, ...]:
        """Words of the answers."""
        ...

    def probes(self) -> tuple[str, str]:
        """Return two prompts with a common beginning, each to be answered by an option."""
        ...


def prompt(context: str, question: str) -> str:
    """Return a prompt that an option completes."""
    return f"{context} {question}"


def normalized(weights: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return weights as probabilities, none below ``TINY`` before the last division.

    Raises:
        ValueError: a weight is negative or not finite, or all are 0.
    """
    p = np.asarray(weights, np.float64)
    if p.ndim != 1 or not np.isfinite(p).all() or (p < 0).any() or not p.sum() > 0:
        raise ValueError("weights must be finite, 0 or more, and not all 0")
    p = np.maximum(p / p.sum(), TINY)
    return np.asarray(p / p.sum(), np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionSide:
    """One side of a prediction: with a thought, or without."""

    label: str
    """For keys and notes, unique within a generation."""
    context: str
    questions: Mapping[str, str]
    """Candidate → what is asked about it, in the order they were chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Distributions of one side."""

    forecasts: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Subject → distribution; a subject that could not be read is absent."""
    ended_us: int | None = None
    """When the last of it was durable."""
    notes: tuple[str, ...] = ()
    """Why something is absent."""
    censored: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)
    """Subject → which of its options lay outside of what the server told; none: absent."""


class OptionForecast(NamedTuple):
    """One distribution, as it was read."""

    p: np.ndarray
    """(n_options,)."""
    ended_us: int | None
    censored: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbabilityChannel(ABC):
    """Where predictions are read."""

    model: Model
    wording: Options
    estimator: ClassVar[Estimator]
    """Its name, recorded with every reward."""

    @abstractmethod
    async def predict(self, side: PredictionSide, asker: ThoughtAsker) -> Prediction:
        """Ask for all of a side's distributions; faults become notes."""


MakeChannel: TypeAlias = Callable[[Model, Any], ProbabilityChannel]
"""Makes a channel of a model, with the wording of what is asked."""


class PerSubjectChannel(ProbabilityChannel):
    """Channel that asks about each subject apart."""

    @abstractmethod
    async def read(self, text: str, label: str, asker: ThoughtAsker) -> OptionForecast:
        """Return the distribution of the options after a prompt.

        Raises:
            UnreadableAnswerError: the answer does not hold it.
            EvaluationFault: a call failed.
        """

    async def predict(self, side: PredictionSide, asker: ThoughtAsker) -> Prediction:
        """See ``ProbabilityChannel``: a request for each subject, all at once."""
        readings = await asyncio.gather(
            *(
                self.read(prompt(side.context, question), f"{side.label}/{name}", asker)
                for name, question in side.questions.items()
            ),
            return_exceptions=True,
        )
        read: dict[str, OptionForecast] = {}
        notes = []
        for name, reading in zip(side.questions, readings, strict=True):
            if isinstance(reading, EvaluationFault | UnreadableAnswerError):
                notes.append(note(f"{side.label}/{name}", reading))
            elif isinstance(reading, BaseException):
                raise reading
            else:
                read[name] = reading
        ends = [reading.ended_us for reading in read.values() if reading.ended_us is not None]
        return Prediction(
            forecasts={name: reading.p for name, reading in read.items()},
            ended_us=max(ends, default=None),
            notes=tuple(notes),
            censored={
                name: reading.censored for name, reading in read.items() if any(reading.censored)
            },
        )


class ChatEcho(PerSubjectChannel):
    """Teacher forcing of a chat model: vLLM's ``prompt_logprobs`` of each option as the last message.

    The server's chat template puts question and answer together, and the answer stays open
    (``continue_final_message``), so what is read is how likely the model's own turn begins with the option.
    All options have the same tokens before it, whose probabilities cancel.
    """

    estimator = "chat_echo"

    async def read(self, text: str, label: str, asker: ThoughtAsker) -> OptionForecast:
        """See ``ProbabilityChannel``."""
        answered = await asyncio.gather(
            *(asker.ask(self.call(text, o), f"{label}/{o}") for o in self.wording.options)
        )
        logs = forced([answer.reply.value for answer in answered])
        ended_us = max(answered, key=lambda answer: answer.ended_us or 0).ended_us
        return OptionForecast(normalized(np.exp(logs - logs.max())), ended_us)

    def call(
        self, text: str, option: str, *, temperature: float = 1.0, repeat: int = 0
    ) -> PaidCall:
        """Return the request of the log-probabilities of a prompt that an option answers."""
        return self.model.exchange(
            self.model.reads_for,
            "chat/completions",
            {
                "messages": [
                    {"role": "user", "content": text},
                    {"role": "assistant", "content": option},
                ],
                "prompt_logprobs": 0,
                "add_generation_prompt": False,
                "continue_final_message": True,
                "max_tokens": 1,
                "temperature": temperature,
            },
            limit=1,
            repeat=repeat,
            read=prompt_tail,
        )


def prompt_tail(raw: Mapping[str, Json]) -> Json:
    """Return number, ids and log-probabilities of a prompt's last tokens, and how many it was billed.

    Raises:
        UnreadableAnswerError: the server told no log-probability of each token.
    """
    entries: Any = raw.get("prompt_logprobs")
    if not isinstance(entries, list) or not entries:
        raise UnreadableAnswerError("the server told no `prompt_logprobs`")
    tail: list[tuple[str, float]] = []
    for entry in entries[1:][-TAIL:]:
        if not isinstance(entry, dict) or len(entry) != 1:
            raise UnreadableAnswerError(
                "`prompt_logprobs` must hold one token for each of the prompt's"
            )
        ((token, log_prob),) = entry.items()
        log = log_prob.get("logprob") if isinstance(log_prob, dict) else None
        if not isinstance(log, int | float) or not CENSORED < log < math.inf:
            raise UnreadableAnswerError("`prompt_logprobs` must hold numbers")
        tail.append((str(token), float(log)))
    usage: Any = raw.get("usage")
    return {
        "n": len(entries),
        "n_prompt": usage.get("prompt_tokens") if isinstance(usage, dict) else None,
        "is_first_empty": entries[0] is None,
        "ids": [token for token, _ in tail],
        "logs": [log for _, log in tail],
    }


def forced(tails: Sequence[Json]) -> np.ndarray:
    """Return the log-probability of each option after what all prompts have in common, (n_options,).

    Raises:
        UnreadableAnswerError: the prompts differ before their last ``TAIL`` tokens, or an option has none of
            its own.
    """
    entries: Any = tails
    first = max(
        entry["n"] - len(entry["ids"]) for entry in entries
    )  # number of a token that all tails have
    least = min(entry["n"] for entry in entries)
    if first >= least:
        raise UnreadableAnswerError("an option has too many tokens")
    tokens = [entry["ids"][-(entry["n"] - first) :] for entry in entries]
    n_shared = 0
    while first + n_shared < least and len({of_one[n_shared] for of_one in tokens}) == 1:
        n_shared += 1
    if n_shared == 0 and first > 1:
        raise UnreadableAnswerError("an option has too many tokens")
    place = first + n_shared
    if place == least:
        raise UnreadableAnswerError("an option is how another one begins")
    return np.array([math.fsum(entry["logs"][-(entry["n"] - place) :]) for entry in entries])


class Echo(PerSubjectChannel):
    """Teacher forcing over ``/v1/completions``, an echo per option, all of a candidate at once."""

    estimator = "echo"

    async def read(self, text: str, label: str, asker: ThoughtAsker) -> OptionForecast:
        """See ``ProbabilityChannel``."""
        answered = await asker.ask(self.call(text), label)
        logs = numbers(answered.reply.value, "logprobs", len(self.wording.options))
        return OptionForecast(normalized(np.exp(logs - logs.max())), answered.ended_us)

    def call(self, text: str, *, temperature: float = 1.0, repeat: int = 0) -> PaidCall:
        """Return the request of the log-probabilities of all options after a prompt."""
        listed: list[Json] = [f"{text} {option}" for option in self.wording.options]
        return self.model.exchange(
            self.model.reads_for,
            "completions",
            {
                "prompt": listed,
                "echo": True,
                "logprobs": 0,
                "max_tokens": 0,
                "temperature": temperature,
            },
            repeat=repeat,
            read=lambda raw: {"logprobs": [*echoed(raw, len(text), len(listed))]},
        )


def echoed(raw: Mapping[str, Json], begin: int, n: int) -> list[float]:
    """Return the log-probability of what stands after ``begin`` characters, of each prompt.

    Raises:
        UnreadableAnswerError: the server did not echo, or tokens straddle the end of the prompt.
    """
    log_probs: dict[int, float] = {}
    choices: Any = raw.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        logprobs = choice.get("logprobs") or {}
        offsets, logs = logprobs.get("text_offset"), logprobs.get("token_logprobs")
        if not isinstance(offsets, list) or not isinstance(logs, list):
            raise UnreadableAnswerError("the server did not echo log-probabilities")
        # A token may begin with the blank before the option.
        after = [log for offset, log in zip(offsets, logs, strict=False) if offset >= begin]
        if not after or not all(isinstance(log, int | float) for log in after):
            raise UnreadableAnswerError("no token begins where the option does")
        log_probs[int(choice.get("index", len(log_probs)))] = math.fsum(after)
    if len(log_probs) != n:
        raise UnreadableAnswerError(f"{len(log_probs)} of {n} prompts were echoed")
    return [log_probs[i] for i in sorted(log_probs)]


class Chat(PerSubjectChannel):
    """The next token's twenty most likely, of which the options are among."""

    estimator = "chat"

    async def read(self, text: str, label: str, asker: ThoughtAsker) -> OptionForecast:
        """See ``ProbabilityChannel``."""
        answered = await asker.ask(self.call(text), label)
        p, censored = of_options(answered.reply.value, self.wording.options)
        return OptionForecast(p, answered.ended_us, censored)

    def call(
        self, text: str, *, temperature: float = 1.0, repeat: int = 0, top: int = TOP
    ) -> PaidCall:
        """Return the request of the next token's most likely words."""
        return self.model.chat(
            self.model.reads_for,
            [{"role": "user", "content": text}],
            limit=1,
            repeat=repeat,
            read=next_tokens,
            logprobs=True,
            top_logprobs=top,
            temperature=temperature,
        )


def next_tokens(done: Completion) -> Json:
    """Return what a chat's answer tells of its first token.

    Raises:
        UnreadableAnswerError: it tells no log-probabilities.
    """
    raw: Any = done.raw
    try:
        (first, *_) = raw["choices"][0]["logprobs"]["content"]
        listed: list[Json] = [
            [str(top["token"]), float(top["logprob"])] for top in first["top_logprobs"]
        ]
    except (KeyError, IndexError, TypeError, ValueError):
        listed = []
    if not listed:
        raise UnreadableAnswerError("the server told no log-probabilities")
    return {"top": listed}


def of_options(value: Json, options: Sequence[str]) -> tuple[np.ndarray, tuple[bool, ...]]:
    """Return the options' distribution, and which of them lay outside of what was told.

    Spellings of one option (" 7", "7") add up. One that is censored, absent or told as -9999, has at
    most the probability of the least word told: it gets its share of what is left, and -9999 is
    never averaged.

    Raises:
        UnreadableAnswerError: none of the options was told.
    """
    reported: Any = value if isinstance(value, dict) else {}
    listed = [
        (str(t).strip(), math.exp(log)) for t, log in reported.get("top", []) if log > CENSORED
    ]
    mass = {option: math.fsum(p for t, p in listed if t == option) for option in options}
    censored = tuple(mass[option] == 0.0 for option in options)
    n = sum(censored)
    if n == len(options):
        raise UnreadableAnswerError("none of the options is among the most likely words")
    rest = max(0.0, 1.0 - math.fsum(p for _, p in listed))
    share = min(*(p for _, p in listed), rest / n) if n else 0.0
    return normalized([mass[option] or share for option in options]), censored


def note(where: str, error: Exception) -> str:
    """Return why something is absent, on one line."""
    return one_line(f"{where}: {error}", 300, redacted_text)


def numbers(value: Json, name: str, n: int) -> np.ndarray:
    """Return the n finite numbers that an answer keeps under a name.

    Raises:
        UnreadableAnswerError: there are others.
    """
    numbers = value.get(name) if isinstance(value, dict) else None
    if not isinstance(numbers, list) or len(numbers) != n:
        raise UnreadableAnswerError(f"must hold {n} numbers")
    array = np.array([float(v) for v in numbers if isinstance(v, int | float)])
    if len(array) != n or not np.isfinite(array).all():
        raise UnreadableAnswerError(f"must hold {n} finite numbers")
    return array
