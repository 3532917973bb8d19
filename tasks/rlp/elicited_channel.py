"""Elicited channel, for models without log-probabilities: weights they write.

The model writes ten weights, one of each candidate outcome. Both sides are asked alike and apart.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from convergence_core.errors import EvaluationFault
from convergence_core.records import Json
from convergence_core.rlp.bins import N_BINS, normalized
from convergence_core.rlp.commitments import Estimator
from tasks.calls.metric_calls import PaidCall
from tasks.rlp.model_calls import PREDICTION, ThoughtAsker, UnreadableAnswerError
from tasks.rlp.probability_channels import (
    Chat,
    ChatEcho,
    Echo,
    MakeChannel,
    Prediction,
    PredictionSide,
    ProbabilityChannel,
    note,
)
from tasks.rlp.prompts import RlpPrompts

ELICITED_LIMIT: Final = 2000
"""Tokens of an answer."""


class Elicited(ProbabilityChannel):
    """Ten weights that the model writes; no probability of its own, but its words' worth."""

    estimator = "elicited"
    wording: RlpPrompts

    async def predict(self, side: PredictionSide, asker: ThoughtAsker) -> Prediction:
        """See ``ProbabilityChannel``: all subjects in one request."""
        aliases = {f"trial_{i}": name for i, name in enumerate(side.questions, 1)}
        questions = {alias: side.questions[name] for alias, name in aliases.items()}
        try:
            answered = await asker.ask(self.call(side.context, questions), side.label)
        except (EvaluationFault, UnreadableAnswerError) as error:
            return Prediction(notes=(note(side.label, error),))
        forecasts, notes = {}, []
        for alias, name in aliases.items():
            try:
                forecasts[name] = weights_of(answered.reply.value, alias, N_BINS, spread=0.002)
            except UnreadableAnswerError as error:
                notes.append(note(f"{side.label}/{name}", error))
        return Prediction(forecasts=forecasts, ended_us=answered.ended_us, notes=tuple(notes))

    def call(self, context: str, questions: Mapping[str, str]) -> PaidCall:
        """Return the request of all weights."""
        return self.model.chat(
            PREDICTION,
            self.wording.elicitation(context, questions),
            limit=ELICITED_LIMIT,
            read=lambda done: {"text": done.text},
            response_format=_weights_schema([*questions]),
            temperature=0.0,
        )


def _weights_schema(names: Sequence[str]) -> Json:
    weights: dict[str, Json] = {
        "type": "array",
        "items": {"type": "integer"},
        "minItems": N_BINS,
        "maxItems": N_BINS,
    }
    return {
        "type": "json_schema",
        "json_schema": {
            "name": "forecast",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": dict.fromkeys(names, weights),
                "required": [*names],
                "additionalProperties": False,
            },
        },
    }


def weights_of(value: Json, name: str, n: int, *, spread: float) -> np.ndarray:
    """Return the weights of one question out of a model's JSON, as a distribution, (n,).

    Args:
        value: with the model's ``text``.
        name: of the question.
        n: outcomes.
        spread: added to each share: none is impossible, whatever the model writes.

    Raises:
        UnreadableAnswerError: there are not n of them, 0 or more and not all 0.
    """
    text = value.get("text") if isinstance(value, dict) else None
    begin = text.find("{") if isinstance(text, str) else -1
    if not isinstance(text, str) or begin < 0:
        raise UnreadableAnswerError("the answer holds no JSON object")
    try:
        found, _ = json.JSONDecoder().raw_decode(text, begin)
        listed = found[name]
        if not isinstance(listed, list) or len(listed) != n:
            raise UnreadableAnswerError(f"`{name}` must be a list of {n} weights")
        return normalized(normalized([float(w) for w in listed]) + spread)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, UnreadableAnswerError):
            raise
        raise UnreadableAnswerError(f"its weights cannot be read: {error}") from None


CHANNELS: Final[Mapping[Estimator, MakeChannel]] = {
    "chat_echo": ChatEcho,
    "echo": Echo,
    "chat": Chat,
    "elicited": Elicited,
}
"""Best first."""
