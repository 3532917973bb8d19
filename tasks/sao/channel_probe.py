"""Probe of a server's probability channels, before the first use of each.

A channel that fails one is refused with the cause.

====  ====================================================================================
i     an echoed log-probability equals the next token's own, within .01
ii    it is the same at temperature .2 and 1, within .001
iii   as many entries as the prompt has tokens, the first of them empty
iv    A, an overlapping B, and A again: both A agree, within .001
v     the options hold half of the mass at least
====  ====================================================================================

``chat_echo`` and ``echo`` need i to iv, ``chat`` ii, iv and v; the written channels need one readable answer.
A channel that fails is left for the next; where none passes, nothing is scored.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from convergence_core.errors import EvaluationFault
from convergence_core.records import Json
from tasks.calls.metric_calls import PaidCall
from tasks.rlp.model_calls import Exchanger, Model, ThoughtAsker, UnreadableAnswerError
from tasks.sao.probability_channels import (
    CENSORED,
    Chat,
    ChatEcho,
    Echo,
    Estimator,
    MakeChannel,
    Options,
    PredictionSide,
    ProbabilityChannel,
    forced,
    numbers,
)
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

ECHO_GAP: Final = 0.01
SAME: Final = 0.001
LEAST_MASS: Final = 0.5
EXACT: Final[tuple[Estimator, ...]] = ("chat_echo", "echo", "chat")
_RAW: Final = frozenset({"chat_echo", "echo"})
"""Channels that need more than a chat."""
UseLogprobs: TypeAlias = Literal["auto"] | bool
ReadLogs: TypeAlias = Callable[[str, float], Awaitable[dict[str, float]]]
"""Prompt and temperature → log-probability of each option that was told."""


class ChannelRefusedError(Exception):
    """A server failed a check of a channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelProbe:
    """The channel that passed, and why those above it did not."""

    channel: ProbabilityChannel | None
    """``None`` means none passed."""
    refused: Mapping[Estimator, str]
    """ProbabilityChannel → why."""

    @property
    def estimator(self) -> Estimator | None:
        """Name of the channel that passed."""
        return None if self.channel is None else self.channel.estimator

    @property
    def disabled_reason(self) -> str | None:
        """Why there is no reward, in words; ``None`` if there is a channel."""
        if self.channel is not None:
            return None
        listed = "; ".join(f"{name}: {why}" for name, why in self.refused.items())
        return f"no probability channel ({listed})"


def allowed_channels(use_logprobs: UseLogprobs) -> tuple[Estimator, ...]:
    """Return the channels that a configuration allows, best first.

    Args:
        use_logprobs: of the configuration.
    """
    if use_logprobs == "auto":
        return (*EXACT, "verdict")
    return EXACT if use_logprobs else ("verdict",)


async def probe_channels(
    model: Model,
    wording: Options,
    asker: ThoughtAsker,
    *,
    allowed: Sequence[Estimator],
    channels: Mapping[Estimator, MakeChannel],
) -> ChannelProbe:
    """Return the best channel that a server has.

    Args:
        model: to be asked.
        wording: what the probes are made of; for written channels, all that these need.
        asker: makes the calls.
        allowed: channels, best first.
        channels: their makers.
    """
    refused: dict[Estimator, str] = {}
    for name in allowed:
        if name in _RAW and not isinstance(model.llm, Exchanger):
            refused[name] = "the provider has no such endpoint"
            continue
        try:
            await _Probe(model, wording, asker, channels).check(name)
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
        channels: Mapping[Estimator, MakeChannel],
    ) -> None:
        self._model = model
        self._channels = channels
        self._options = wording.options
        self._wording = wording
        self._text, self._other = wording.probes()
        self._asker = asker
        self._n = 0

    async def check(self, name: Estimator) -> None:
        """Run the checks of a channel.

        Raises:
            ChannelRefusedError: one of them failed.
            UnreadableAnswerError: an answer cannot be read.
            EvaluationFault: a request failed.
        """
        checks = {"chat_echo": self._chat_echo, "echo": self._echo, "chat": self._chat}
        await checks.get(name, partial(self._written, name))()

    async def _stable(self, label: str, read: ReadLogs) -> dict[str, float]:
        """Check ii and iv; return the log-probabilities after the first prompt."""
        first = await read(self._text, 1.0)
        await read(self._other, 1.0)
        for how, temperature in (("iv: asked again", 1.0), ("ii: at temperature .2", 0.2)):
            again = await read(self._text, temperature)
            gaps = [abs(first[o] - again[o]) for o in self._options if o in first and o in again]
            if not gaps:
                raise ChannelRefusedError(f"{how}, {label} cannot be compared")
            if max(gaps) > SAME:
                raise ChannelRefusedError(f"{how}, {label} differs by {max(gaps):.2g}")
        return first

    # -- teacher forcing: i to iv

    async def _chat_echo(self) -> None:
        channel = ChatEcho(self._model, self._wording)

        async def read(text: str, temperature: float) -> dict[str, float]:
            tails = []
            for option in self._options:
                call = channel.call(text, option, temperature=temperature, repeat=self._next())
                tail: Any = await self._ask(call, "chat_echo")
                if tail["n"] != tail["n_prompt"] or not tail["is_first_empty"]:
                    problem = f"{tail['n']} entries for {tail['n_prompt']} tokens"
                    raise ChannelRefusedError(f"iii: {problem}, the first of which must be empty")
                tails.append(tail)
            return dict(zip(self._options, forced(tails).tolist(), strict=True))

        first = await self._stable("an answer's log-probability", read)
        call = Chat(self._model, self._wording).call(self._text, repeat=self._next())
        value: Any = await self._ask(call, "chat_echo")
        likeliest = dict(reversed(value["top"]))  # of one word's spellings the likeliest
        gaps = [
            first[o] - likeliest[o] for o in self._options if likeliest.get(o, CENSORED) > CENSORED
        ]
        if not gaps:
            raise ChannelRefusedError("i: the next token's own log-probability cannot be compared")
        if abs(gap := max(gaps, key=abs)) > ECHO_GAP:
            raise ChannelRefusedError(
                f"i: an answer differs from the next token's own by {gap:.2f}"
            )

    async def _echo(self) -> None:
        channel = Echo(self._model, self._wording)

        async def read(text: str, temperature: float) -> dict[str, float]:
            call = channel.call(text, temperature=temperature, repeat=self._next())
            logs = numbers(await self._ask(call, "echo"), "logprobs", len(self._options))
            return dict(zip(self._options, logs.tolist(), strict=True))

        await self._stable("an echo", read)
        drawn = await self._completion(
            {"prompt": self._text, "max_tokens": 1, "logprobs": 1, "temperature": 0.0},
            _first_token,
        )
        token = str(drawn["token"])
        text = f"{self._text}{token if token.startswith(' ') else f' {token}'}"
        echo = await self._completion(
            {"prompt": text, "echo": True, "logprobs": 0, "max_tokens": 0},
            partial(_echo, begin=len(self._text)),
        )
        if echo["n"] != echo["n_prompt"] or echo["first"] is not None:
            problem = f"{echo['n']} entries for {echo['n_prompt']} tokens"
            raise ChannelRefusedError(f"iii: {problem}, the first of them {echo['first']}")
        if not echo["last"]:
            raise ChannelRefusedError("i: no token begins where the prompt ends")
        gap = math.fsum(echo["last"]) - float(drawn["logprob"])
        if abs(gap) > ECHO_GAP:
            raise ChannelRefusedError(f"i: an echo differs from the next token's own by {gap:.2f}")

    async def _completion(
        self, body: dict[str, Json], read: Callable[[Mapping[str, Json]], Json]
    ) -> Any:
        call = self._model.exchange(
            self._model.reads_for,
            "completions",
            body,
            limit=1 if body["max_tokens"] else 0,
            repeat=self._next(),
            read=read,
        )
        return await self._ask(call, "echo")

    # -- chat: ii, iv, v

    async def _chat(self) -> None:
        channel = Chat(self._model, self._wording)

        async def read(text: str, temperature: float) -> dict[str, float]:
            call = channel.call(text, temperature=temperature, repeat=self._next())
            value: Any = await self._ask(call, "chat")
            return {str(t).strip(): float(log) for t, log in value["top"] if log > CENSORED}

        first = await self._stable("a log-probability", read)
        mass = math.fsum(math.exp(first[o]) for o in self._options if o in first)
        if mass < LEAST_MASS:
            raise ChannelRefusedError(f"v: the options hold {mass:.2f} of the mass")

    # -- written: one readable answer

    async def _written(self, name: Estimator) -> None:
        side = PredictionSide(
            label=f"probe/{name}/{self._next()}",
            context="",
            questions={"a": self._text, "b": self._other},
        )
        prediction = await self._channels[name](self._model, self._wording).predict(
            side, self._asker
        )
        if not prediction.forecasts:
            raise ChannelRefusedError("; ".join(prediction.notes) or "nothing could be read")

    # -- helpers

    def _next(self) -> int:
        """Return a number of its own: a repeated question must reach the server again."""
        self._n += 1
        return self._n

    async def _ask(self, call: PaidCall, name: str) -> Json:
        return (await self._asker.ask(call, f"probe/{name}")).reply.value


def _first_token(raw: Mapping[str, Json]) -> Json:
    """Return the most likely token and its log-probability."""
    token: Any = raw
    try:
        logprobs = token["choices"][0]["logprobs"]
        return {
            "token": str(logprobs["tokens"][0]),
            "logprob": float(logprobs["token_logprobs"][0]),
        }
    except (KeyError, IndexError, TypeError, ValueError):
        raise UnreadableAnswerError(
            "the server told no log-probability of the next token"
        ) from None


def _echo(raw: Mapping[str, Json], *, begin: int) -> Json:
    """Return the log-probabilities of a prompt from a place on, and how many tokens it was billed."""
    value: Any = raw
    try:
        logprobs = value["choices"][0]["logprobs"]
        logs, places = logprobs["token_logprobs"], logprobs["text_offset"]
        n_prompt = value["usage"]["prompt_tokens"]
    except (KeyError, IndexError, TypeError):
        raise UnreadableAnswerError("the server did not echo log-probabilities") from None
    last = [log for at, log in zip(places, logs, strict=True) if at >= begin]
    return {"n": len(logs), "n_prompt": n_prompt, "first": logs[0], "last": last}
