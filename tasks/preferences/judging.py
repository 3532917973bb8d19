"""The judge of preferences: both orders of each pair, read off the best channel that its server has.

The channels are those of thoughts (``tasks.thoughts.channels``), with two options in place of ten bins.
Where a server tells no probability, plain verdicts are read; those of both orders must agree then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.rlp.commitments import Estimator
from convergence_core.sao.preferences import SAID, Comparison, Judgement
from convergence_core.sao.templates import FIRST, JUDGING_QUESTION, SECOND, judging
from tasks.asking import PaidCall
from tasks.thoughts.asking import SAO, Answered, Model, ThoughtAsker
from tasks.thoughts.channels import Arm, Channel, Chat, ChatEcho, Decisions, Echo, Rung, Told, each
from tasks.thoughts.ladder import EXACT, Ladder, UseLogprobs, climb
from tasks.thoughts.wording import prompt
from tasks.thoughts.written import chosen

PAIR: Final = "pair"
VERDICT_LIMIT: Final = 16
"""Tokens of a plain verdict."""


class JudgeWords:
    """What shows whether a judge's server tells probabilities."""

    options = (FIRST, SECOND)
    split = "Which answer is better?"

    def probes(self) -> tuple[str, str]:
        """See ``Options.probes``."""
        begin = "Name a colour."
        return (
            prompt(judging(begin, "Blue.", "A spoon."), JUDGING_QUESTION),
            prompt(judging(begin, "A spoon.", "Blue."), JUDGING_QUESTION),
        )


class Verdict(Rung):
    """The written rung: one letter, worth ``SAID`` in each order."""

    estimator: Estimator = "verdict"

    async def tell(self, arm: Arm, asker: ThoughtAsker) -> Told:
        """See ``Channel``."""
        return await each(arm, lambda name: self._one(arm, name, asker))

    async def _one(self, arm: Arm, name: str, asker: ThoughtAsker) -> tuple[np.ndarray, Answered]:
        call = self.call(prompt(arm.context, arm.questions[name]))
        answered = await asker.ask(call, f"{arm.label}/{name}")
        p = SAID if chosen(answered.reply.value) else 1.0 - SAID
        return np.array([p, 1.0 - p]), answered

    def call(self, text: str, *, repeat: int = 0) -> PaidCall:
        """Return the request of one verdict."""
        return self.model.chat(
            SAO,
            [{"role": "user", "content": text}],
            limit=VERDICT_LIMIT,
            repeat=repeat,
            read=lambda done: {"text": done.text},
            temperature=0.0,
        )


CHANNELS: Final[Mapping[Estimator, type[ChatEcho | Echo | Decisions | Chat | Verdict]]] = {
    "chat_echo": ChatEcho,
    "echo": Echo,
    "decisions": Decisions,
    "chat": Chat,
    "verdict": Verdict,
}


def rungs_of(use_logprobs: UseLogprobs) -> tuple[Estimator, ...]:
    """Return the rungs that a configuration allows, best first."""
    if use_logprobs == "auto":
        return (*EXACT, "verdict")
    return EXACT if use_logprobs else ("verdict",)


async def climb_as_judge(model: Model, use_logprobs: UseLogprobs, asker: ThoughtAsker) -> Ladder:
    """Return the best rung that a judge's server can stand on."""
    return await climb(
        model, JudgeWords(), asker, allowed=rungs_of(use_logprobs), channels=CHANNELS
    )


@dataclass(frozen=True, slots=True)
class Heard:
    """What became of one judgement."""

    judgement: Judgement | None
    """``None``: an order failed, and nothing stands in for it."""
    error: str | None = None


async def judge(
    comparison: Comparison, label: str, channel: Channel, asker: ThoughtAsker
) -> Heard:
    """Judge a comparison in both orders; a fault of either voids the pair.

    Args:
        comparison: what is judged.
        label: part of the calls' keys, unique within a round.
        channel: the rung that stands.
        asker: makes the calls.
    """
    first, second = comparison.first.text, comparison.second.text
    told = []
    for order, (a, b) in (("12", (first, second)), ("21", (second, first))):
        arm = Arm(
            label=f"{label}/{order}",
            context=judging(comparison.prompt, a, b),
            questions={PAIR: JUDGING_QUESTION},
        )
        one = await channel.tell(arm, asker)
        if PAIR not in one.forecasts:
            return Heard(None, "; ".join(one.notes) or "nothing could be read")
        told.append(one.forecasts[PAIR])
    return Heard(
        Judgement(p12=float(told[0][0]), p21=float(told[1][1]), estimator=channel.estimator)
    )
