"""Judge of pairs: both orders of each, by the best channel of its server.

Where a server tells no probability, plain verdicts are read; those of both orders must agree then.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from convergence_core.records import Json
from convergence_core.sao.preferences import VERDICT_PROBABILITY, Comparison, Judgement
from convergence_core.sao.templates import FIRST, JUDGING_QUESTION, SECOND, judging
from tasks.calls.metric_calls import PaidCall
from tasks.rlp.model_calls import SAO, Model, ThoughtAsker, UnreadableAnswerError
from tasks.sao.channel_probe import ChannelProbe, UseLogprobs, allowed_channels, probe_channels
from tasks.sao.probability_channels import (
    Chat,
    ChatEcho,
    Echo,
    Estimator,
    MakeChannel,
    OptionForecast,
    PerSubjectChannel,
    PredictionSide,
    ProbabilityChannel,
    prompt,
)
from tasks.sao.writer import FailedError
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

PAIR: Final = "pair"
VERDICT_LIMIT: Final = 16
"""Tokens of a plain verdict."""


class JudgeWords:
    """Options of a judge, and prompts that show whether its server tells their probability."""

    options = (FIRST, SECOND)

    def probes(self) -> tuple[str, str]:
        """See ``Options.probes``."""
        begin = "Name a colour."
        return (
            prompt(judging(begin, "Blue.", "A spoon."), JUDGING_QUESTION),
            prompt(judging(begin, "A spoon.", "Blue."), JUDGING_QUESTION),
        )


class WrittenVerdict(PerSubjectChannel):
    """The written channel: one letter, worth ``VERDICT_PROBABILITY`` in each order."""

    estimator = "verdict"

    async def read(self, text: str, label: str, asker: ThoughtAsker) -> OptionForecast:
        """See ``PerSubjectChannel``."""
        answered = await asker.ask(self.call(text), label)
        p = VERDICT_PROBABILITY if chosen(answered.reply.value) else 1.0 - VERDICT_PROBABILITY
        return OptionForecast(np.array([p, 1.0 - p]), answered.ended_us)

    def call(self, text: str) -> PaidCall:
        """Return the request of one verdict."""
        return self.model.chat(
            SAO,
            [{"role": "user", "content": text}],
            limit=VERDICT_LIMIT,
            read=lambda done: {"text": done.text},
            temperature=0.0,
        )


def chosen(value: Json) -> bool:
    """Return whether the first of two was chosen.

    Raises:
        UnreadableAnswerError: the answer is neither A nor B.
    """
    text = value.get("text") if isinstance(value, dict) else None
    letter = text.strip().strip(".\"'*` ").upper() if isinstance(text, str) else ""
    if letter not in ("A", "B"):
        shown = one_line(str(text), 40, redacted_text)
        raise UnreadableAnswerError(f"must be A or B, not {shown!r}")
    return letter == "A"


CHANNELS: Final[Mapping[Estimator, MakeChannel]] = {
    "chat_echo": ChatEcho,
    "echo": Echo,
    "chat": Chat,
    "verdict": WrittenVerdict,
}


async def probe_judge_channels(
    model: Model, use_logprobs: UseLogprobs, asker: ThoughtAsker
) -> ChannelProbe:
    """Return the best channel that a judge's server has."""
    allowed = allowed_channels(use_logprobs)
    return await probe_channels(model, JudgeWords(), asker, allowed=allowed, channels=CHANNELS)


async def judge(
    comparison: Comparison, label: str, channel: ProbabilityChannel, asker: ThoughtAsker
) -> Judgement:
    """Judge a comparison in both orders.

    Args:
        comparison: what is judged.
        label: part of the calls' keys, unique within a round.
        channel: where probabilities are read.
        asker: makes the calls.

    Raises:
        FailedError: an order failed, which voids the pair.
    """
    first, second = comparison.first.text, comparison.second.text
    predictions = []
    for order, (a, b) in (("12", (first, second)), ("21", (second, first))):
        side = PredictionSide(
            label=f"{label}/{order}",
            context=judging(comparison.prompt, a, b),
            questions={PAIR: JUDGING_QUESTION},
        )
        prediction = await channel.predict(side, asker)
        if PAIR not in prediction.forecasts:
            notes = "; ".join(prediction.notes) or "nothing could be read"
            raise FailedError(f"judgement: {notes}")
        predictions.append(prediction.forecasts[PAIR])
    return Judgement(
        p12=float(predictions[0][0]), p21=float(predictions[1][1]), estimator=channel.estimator
    )
