"""The rung for models that tell no probability: ten weights of each candidate, as they write them.

Both arms are asked alike and apart.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from convergence_core.errors import EvaluationFault
from convergence_core.records import Json
from convergence_core.rlp.bins import N_BINS, normalized
from convergence_core.rlp.commitments import Estimator
from tasks.calls.metric_calls import PaidCall
from tasks.rlp.model_calls import PREDICTION, Model, ThoughtAsker, UnreadableAnswerError
from tasks.rlp.probability_channels import (
    Channel,
    Chat,
    ChatEcho,
    Echo,
    Prediction,
    PredictionSide,
    ProbabilityChannel,
    note,
)
from tasks.rlp.prompts import Wording

ELICITED_LIMIT: Final = 2000


class Elicited(ProbabilityChannel):
    """Ten weights that the model writes; no probability of its own, but its words' worth."""

    estimator: Estimator = "elicited"
    wording: Wording

    async def tell(self, arm: PredictionSide, asker: ThoughtAsker) -> Prediction:
        """See ``Channel``."""
        aliases = {f"trial_{i}": name for i, name in enumerate(arm.questions, 1)}
        questions = {alias: arm.questions[name] for alias, name in aliases.items()}
        try:
            answered = await asker.ask(self.call(arm.context, questions), arm.label)
        except (EvaluationFault, UnreadableAnswerError) as error:
            return Prediction({}, notes=(note(arm.label, error),))
        told = Prediction({}, ended_us=answered.ended_us)
        for alias, name in aliases.items():
            try:
                told.forecasts[name] = weights_of(answered.reply.value, alias)
            except UnreadableAnswerError as error:
                told.notes += (note(f"{arm.label}/{name}", error),)
        return told

    def call(self, context: str, questions: Mapping[str, str], *, repeat: int = 0) -> PaidCall:
        """Return the request of all weights."""
        return self.model.chat(
            PREDICTION,
            self.wording.elicitation(context, questions),
            limit=ELICITED_LIMIT,
            repeat=repeat,
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


def weights_of(value: Json, name: str) -> np.ndarray:
    """Return the weights of one question out of a model's JSON, as a distribution.

    Raises:
        UnreadableError: there are not ten of them, 0 or more and not all 0.
    """
    text = value.get("text") if isinstance(value, dict) else None
    begin = text.find("{") if isinstance(text, str) else -1
    if not isinstance(text, str) or begin < 0:
        raise UnreadableAnswerError("the answer holds no JSON object")
    try:
        found, _ = json.JSONDecoder().raw_decode(text, begin)
        listed = found[name]
        if not isinstance(listed, list) or len(listed) != N_BINS:
            raise UnreadableAnswerError(f"`{name}` must be a list of {N_BINS} weights")
        weights = np.array([float(w) for w in listed])
        # As many spread over all as the model would hardly write: none is impossible.
        return normalized(normalized(weights) + 0.002)
    except UnreadableAnswerError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError, ZeroDivisionError) as error:
        raise UnreadableAnswerError(f"its weights cannot be read: {error}") from None


CHANNELS: Final[Mapping[Estimator, Callable[[Model, Wording], Channel]]] = {
    "chat_echo": ChatEcho,
    "echo": Echo,
    "chat": Chat,
    "elicited": Elicited,
}
"""Rungs, best first."""
