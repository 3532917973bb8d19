"""Which rung a server can stand on: each is probed before its first use, and refused for cause.

====  ====================================================================================
i     an echoed log-probability equals the next token's own, within .01
ii    it is the same at temperature .2 and 1, within .001
iii   as many entries as the prompt has tokens, the first of them empty
iv    A, an overlapping B, and A again: both A agree, within .001
v     the options hold half of the mass at least
====  ====================================================================================

``chat_echo`` and ``echo`` need i to iv, ``chat`` ii, iv and v; the written rungs need one readable answer.
A rung that fails is left for the next; where none stands, nothing is scored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from convergence_core.errors import EvaluationFault
from convergence_core.records import Json
from convergence_core.rlp.commitments import ESTIMATORS, Estimator
from tasks.rlp.elicited_channel import CHANNELS
from tasks.rlp.model_calls import Exchanger, Model, ThoughtAsker, UnreadableAnswerError
from tasks.rlp.probability_channels import (
    CENSORED,
    Channel,
    Chat,
    ChatEcho,
    Echo,
    PredictionSide,
    forced,
    numbers,
)
from tasks.rlp.prompts import Options
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

ECHO_GAP: Final = 0.01
SAME: Final = 0.001
LEAST_MASS: Final = 0.5
EXACT: Final[tuple[Estimator, ...]] = ("chat_echo", "echo", "chat")
_RAW: Final = frozenset({"chat_echo", "echo"})
"""Rungs that need more than a chat."""
WRITTEN: Final[tuple[Estimator, ...]] = ("elicited",)
UseLogprobs: TypeAlias = Literal["auto"] | bool


class ChannelRefusedError(Exception):
    """A server failed a check of a rung."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelProbe:
    """The rung that stands, and why those above it do not."""

    channel: Channel | None
    """``None``: no rung stands."""
    refused: Mapping[Estimator, str]
    """Rung → why."""

    @property
    def estimator(self) -> Estimator | None:
        """Name of the rung that stands."""
        return None if self.channel is None else self.channel.estimator

    @property
    def disabled_reason(self) -> str | None:
        """Why there is no reward, in words; ``None``: there is a rung."""
        if self.channel is not None:
            return None
        listed = "; ".join(f"{name}: {why}" for name, why in self.refused.items())
        return f"no probability channel ({listed})"


def rungs_of(use_logprobs: UseLogprobs) -> tuple[Estimator, ...]:
    """Return the rungs that a configuration allows, best first."""
    if use_logprobs == "auto":
        return ESTIMATORS
    return EXACT if use_logprobs else WRITTEN


async def probe_channels(
    model: Model,
    wording: Options,
    asker: ThoughtAsker,
    *,
    allowed: Sequence[Estimator] = ESTIMATORS,
    channels: Mapping[Estimator, Callable[[Model, Any], Channel]] = CHANNELS,
) -> ChannelProbe:
    """Return the best rung that a server can stand on.

    Args:
        model: who is asked.
        wording: what the probes are made of; for written rungs, all that these need.
        asker: makes the calls.
        allowed: rungs, best first.
        channels: makers of the rungs.
    """
    refused: dict[Estimator, str] = {}
    for name in allowed:
        if name in _RAW and not isinstance(model.llm, Exchanger):
            refused[name] = "the provider has no such endpoint"
            continue
        probe = _Probe(model, wording, asker, channels)
        try:
            await probe.check(name)
        except (ChannelRefusedError, UnreadableAnswerError, EvaluationFault) as error:
            refused[name] = one_line(str(error), 200, redacted_text)
            continue
        return ChannelProbe(channel=channels[name](model, wording), refused=refused)
    return ChannelProbe(channel=None, refused=refused)


class _Probe:
    def __init__(
        self,
        model: Model,
        wording: Options,
        asker: ThoughtAsker,
        channels: Mapping[Estimator, Callable[[Model, Any], Channel]],
    ) -> None:
        self._model = model
        self._channels = channels
        self._wording = wording
        self._asker = asker
        self._n = 0

    async def check(self, name: Estimator) -> None:
        """Run the checks of a rung.

        Raises:
            RefusedError: one of them failed.
            UnreadableError: an answer cannot be read.
            EvaluationFault: a request failed.
        """
        match name:
            case "chat_echo":
                await self._chat_echo()
            case "echo":
                await self._echo()
            case "chat":
                await self._chat()
            case "elicited" | "verdict":
                await self._written(name)

    # -- teacher forcing: i to iv

    async def _chat_echo(self) -> None:
        channel = ChatEcho(self._model, self._wording)
        text, other = self._wording.probes()

        async def read(prompt: str, temperature: float) -> np.ndarray:
            tails = []
            for option in self._wording.options:
                call = channel.call(prompt, option, temperature=temperature, repeat=self._next())
                tail: Any = await self._ask(call, "chat_echo")
                if tail["n"] != tail["n_prompt"] or not tail["is_first_empty"]:
                    told = f"{tail['n']} entries for {tail['n_prompt']} tokens"
                    raise ChannelRefusedError(f"iii: {told}, the first of which must be empty")
                tails.append(tail)
            return forced(tails)

        first = await read(text, 1.0)
        await read(other, 1.0)
        again = await read(text, 1.0)
        _same("iv: asked again, an answer's log-probability", first, again)
        _same("ii: at temperature .2, it", first, await read(text, 0.2))
        call = Chat(self._model, self._wording).call(text, repeat=self._next())
        value: Any = await self._ask(call, "chat_echo")
        told = dict(reversed(value["top"]))  # of one word's spellings the likeliest
        both = [
            (told[o], log)
            for o, log in zip(self._wording.options, first, strict=True)
            if o in told
        ]
        if not both:
            raise ChannelRefusedError("i: the next token's own log-probability cannot be compared")
        gap = max((log - own for own, log in both if own > CENSORED), key=abs)
        if abs(gap) > ECHO_GAP:
            raise ChannelRefusedError(
                f"i: an answer differs from the next token's own by {gap:.2f}"
            )

    async def _echo(self) -> None:
        channel = Echo(self._model, self._wording)
        text, other = self._wording.probes()

        async def read(prompt: str, temperature: float) -> np.ndarray:
            call = channel.call(prompt, temperature=temperature, repeat=self._next())
            return numbers(await self._ask(call, "echo"), "logprobs", len(self._wording.options))

        first = await read(text, 1.0)
        await read(other, 1.0)
        again = await read(text, 1.0)
        _same("iv: asked again, an echo", first, again)
        _same("ii: at temperature .2, an echo", first, await read(text, 0.2))
        token, log = await self._next_token(text)
        echoed = await self._echoed(f"{text}{token}", len(text))
        if abs(echoed - log) > ECHO_GAP:
            gap = echoed - log
            raise ChannelRefusedError(f"i: an echo differs from the next token's own by {gap:.2f}")

    async def _next_token(self, text: str) -> tuple[str, float]:
        """Return the likeliest word after a prompt, with what stands before it, and its log."""
        call = self._model.exchange(
            self._model.reads_for,
            "completions",
            {"prompt": text, "max_tokens": 1, "logprobs": 1, "temperature": 0.0},
            limit=1,
            repeat=self._next(),
            read=_first_token,
        )
        value: Any = await self._ask(call, "echo")
        token = str(value["token"])
        return (token if token.startswith(" ") else f" {token}"), float(value["logprob"])

    async def _echoed(self, text: str, begin: int) -> float:
        def read(raw: Mapping[str, Json]) -> Json:
            found: Any = raw
            try:
                logprobs = found["choices"][0]["logprobs"]
                logs, offsets = logprobs["token_logprobs"], logprobs["text_offset"]
                n_prompt = found["usage"]["prompt_tokens"]
            except (KeyError, IndexError, TypeError):
                raise UnreadableAnswerError("the server did not echo log-probabilities") from None
            after = [log for o, log in zip(offsets, logs, strict=True) if o >= begin]
            return {"n": len(logs), "n_prompt": n_prompt, "first": logs[0], "last": after}

        call = self._model.exchange(
            self._model.reads_for,
            "completions",
            {"prompt": text, "echo": True, "logprobs": 0, "max_tokens": 0},
            repeat=self._next(),
            read=read,
        )
        value: Any = await self._ask(call, "echo")
        if value["n"] != value["n_prompt"] or value["first"] is not None:
            told = f"{value['n']} entries for {value['n_prompt']} tokens"
            raise ChannelRefusedError(f"iii: {told}, the first of them {value['first']}")
        if not value["last"]:
            raise ChannelRefusedError("i: no token begins where the prompt ends")
        return float(sum(value["last"]))

    # -- chat: ii, iv, v

    async def _chat(self) -> None:
        channel = Chat(self._model, self._wording)
        text, other = self._wording.probes()

        async def read(prompt: str, temperature: float) -> dict[str, float]:
            call = channel.call(prompt, temperature=temperature, repeat=self._next())
            value: Any = await self._ask(call, "chat")
            return {str(t).strip(): float(log) for t, log in value["top"] if log > CENSORED}

        first = await read(text, 1.0)
        await read(other, 1.0)
        for name, found in (
            ("iv: asked again, a log-probability", await read(text, 1.0)),
            ("ii: at temperature .2, a log-probability", await read(text, 0.2)),
        ):
            both = [o for o in self._wording.options if o in first and o in found]
            if not both:
                raise ChannelRefusedError(f"{name} cannot be compared")
            _same(name, np.array([first[o] for o in both]), np.array([found[o] for o in both]))
        mass = sum(np.exp(first[o]) for o in self._wording.options if o in first)
        if mass < LEAST_MASS:
            raise ChannelRefusedError(f"v: the options hold {mass:.2f} of the mass")

    # -- written: one readable answer

    async def _written(self, name: Estimator) -> None:
        text, other = self._wording.probes()
        arm = PredictionSide(
            label=f"probe/{name}/{self._next()}", context="", questions={"a": text, "b": other}
        )
        told = await self._channels[name](self._model, self._wording).tell(arm, self._asker)
        if not told.forecasts:
            raise ChannelRefusedError("; ".join(told.notes) or "nothing could be read")

    # -- helpers

    def _next(self) -> int:
        """Return a number of its own: a repeated question must reach the server again."""
        self._n += 1
        return self._n

    async def _ask(self, call: Any, rung: str) -> Json:
        return (await self._asker.ask(call, f"probe/{rung}")).reply.value


def _same(what: str, first: np.ndarray, second: np.ndarray) -> None:
    gap = float(np.max(np.abs(first - second)))
    if gap > SAME:
        raise ChannelRefusedError(f"{what} differs by {gap:.2g}")


def _first_token(raw: Mapping[str, Json]) -> Json:
    found: Any = raw
    try:
        logprobs = found["choices"][0]["logprobs"]
        # With `logprobs: 0` and more, the log-probability of the chosen token is told.
        return {
            "token": str(logprobs["tokens"][0]),
            "logprob": float(logprobs["token_logprobs"][0]),
        }
    except (KeyError, IndexError, TypeError, ValueError):
        raise UnreadableAnswerError(
            "the server told no log-probability of the next token"
        ) from None
