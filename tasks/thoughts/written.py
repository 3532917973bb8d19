"""Rungs for models that tell no probability: what they write is read instead.

``elicited`` asks for ten weights of each candidate, ``pairwise`` which of two does better, in both
orders. Both arms are asked alike and apart.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from convergence_core.errors import EvaluationFault
from convergence_core.records import Json
from convergence_core.rlp.bins import N_BINS, normalized
from convergence_core.rlp.commitments import Estimator, pair_of, pairs_among
from tasks.asking import PaidCall
from tasks.process_redaction import redacted_text
from tasks.redaction import one_line
from tasks.thoughts.asking import PREDICTION, Answered, Model, ThoughtAsker, UnreadableError
from tasks.thoughts.channels import (
    Arm,
    Channel,
    Chat,
    ChatEcho,
    Decisions,
    Echo,
    Rung,
    Told,
    each,
    note,
)
from tasks.thoughts.wording import Wording

N_VOTES: Final = 3
"""Answers to each order of a pair."""
VOTE_LIMIT: Final = 16
"""Longest answer to a pair, in tokens."""
ELICITED_LIMIT: Final = 2000


class Elicited(Rung):
    """Ten weights that the model writes; no probability of its own, but its words' worth."""

    estimator: Estimator = "elicited"
    wording: Wording

    async def tell(self, arm: Arm, asker: ThoughtAsker) -> Told:
        """See ``Channel``."""
        aliases = {f"trial_{i}": name for i, name in enumerate(arm.questions, 1)}
        questions = {alias: arm.questions[name] for alias, name in aliases.items()}
        try:
            answered = await asker.ask(self.call(arm.context, questions), arm.label)
        except (EvaluationFault, UnreadableError) as error:
            return Told({}, notes=(note(arm.label, error),))
        told = Told({}, ended_us=answered.ended_us)
        for alias, name in aliases.items():
            try:
                told.forecasts[name] = weights_of(answered.reply.value, alias)
            except UnreadableError as error:
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
        raise UnreadableError("the answer holds no JSON object")
    try:
        found, _ = json.JSONDecoder().raw_decode(text, begin)
        listed = found[name]
        if not isinstance(listed, list) or len(listed) != N_BINS:
            raise UnreadableError(f"`{name}` must be a list of {N_BINS} weights")
        weights = np.array([float(w) for w in listed])
        # As many spread over all as the model would hardly write: none is impossible.
        return normalized(normalized(weights) + 0.002)
    except UnreadableError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError, ZeroDivisionError) as error:
        raise UnreadableError(f"its weights cannot be read: {error}") from None


class Pairwise(Rung):
    """Which of two does better; its subjects are pairs, its outcomes two."""

    estimator: Estimator = "pairwise"
    wording: Wording

    async def tell(self, arm: Arm, asker: ThoughtAsker) -> Told:
        """See ``Channel``; each pair is asked in both orders."""
        pairs = {pair_of(a, b): (a, b) for a, b in pairs_among([*arm.questions])}
        return await each(arm, lambda name: self._one(arm, pairs[name], asker), tuple(pairs))

    async def _one(
        self, arm: Arm, pair: tuple[str, str], asker: ThoughtAsker
    ) -> tuple[np.ndarray, Answered]:
        first, second = (arm.questions[name] for name in pair)
        asked = [
            (self.call(arm.context, a, b, repeat=vote), is_turned)
            for vote in range(N_VOTES)
            for a, b, is_turned in ((first, second, False), (second, first, True))
        ]
        label = f"{arm.label}/{pair_of(*pair)}"
        said = await asyncio.gather(*(asker.ask(call, label) for call, _ in asked))
        wins = 0
        for answered, (_, is_turned) in zip(said, asked, strict=True):
            wins += chosen(answered.reply.value) != is_turned
        # Laplace's rule of succession: a few votes are no certainty.
        p = (wins + 1.0) / (len(said) + 2.0)
        latest = max(said, key=lambda one: one.ended_us or 0)
        return np.array([p, 1.0 - p]), latest

    def call(self, context: str, first: str, second: str, *, repeat: int = 0) -> PaidCall:
        """Return the request of one comparison."""
        return self.model.chat(
            PREDICTION,
            self.wording.comparison(context, first, second),
            limit=VOTE_LIMIT,
            repeat=repeat,
            read=lambda done: {"text": done.text},
            temperature=1.0,
        )


def chosen(value: Json) -> bool:
    """Return whether the first of two was chosen.

    Raises:
        UnreadableError: the answer is neither A nor B.
    """
    text = value.get("text") if isinstance(value, dict) else None
    letter = text.strip().strip(".\"'*` ").upper() if isinstance(text, str) else ""
    if letter not in ("A", "B"):
        told = one_line(str(text), 40, redacted_text)
        raise UnreadableError(f"must be A or B, not {told!r}")
    return letter == "A"


CHANNELS: Final[Mapping[Estimator, Callable[[Model, Wording], Channel]]] = {
    "chat_echo": ChatEcho,
    "echo": Echo,
    "decisions": Decisions,
    "chat": Chat,
    "elicited": Elicited,
    "pairwise": Pairwise,
}
"""Rungs, best first."""
