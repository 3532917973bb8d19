"""Reward of an answer for training: a blend of named parts.

Every part lies in [0, 1], 1 is best. With weights w_k of the parts p_k that are known,

    additive          2 sum(w_k p_k) / sum(w_k) - 1
    multiplicative    2 prod(p_k ** (w_k / sum(w_k))) - 1

lies in [-1, 1]. Parts below 0 are refused: a product of two negatives would praise. By default the rating
is the only part that weighs. An answer that no one rated has no reward, whatever its other parts; one
with a safety flag has the training reward ``UNSAFE_REWARD``, and its rating stays what people gave.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from convergence_core.feedback.records import refused
from convergence_core.feedback.safety import SafetyRule
from convergence_core.judges.text_features import Floats, hashed_ngrams, ngram_similarity
from convergence_core.judges.texts import words_of

if TYPE_CHECKING:
    from convergence_core.config.feedback import RewardConfig

PART_NAMES: Final = ("rating", "similarity", "style", "length")
UNSAFE_REWARD: Final = -1.0
"""Training reward of an answer with a safety flag."""
LEAST_LIKED: Final = 3
"""Answers that a user rated well, without which there is no style."""
MOST_LIKED: Final = 50
"""Of them that the style is made of, the last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReward:
    """Reward of one answer, with all that it was made of."""

    parts: Mapping[str, float | None]
    """Name → value in [0, 1], also of parts that weigh nothing. ``None`` if unknown."""
    blended: float | None
    """The blend in [-1, 1]. ``None`` if no one rated the answer."""
    training: float | None
    """The reward to train on: the blend, or ``UNSAFE_REWARD`` where there are flags."""
    flags: tuple[SafetyRule, ...] = ()


def answer_parts(
    prompt: str,
    answer: str,
    *,
    rating: float | None,
    style: Floats | None = None,
    length_words: int = 150,
) -> dict[str, float | None]:
    """Return the parts of an answer.

    Args:
        prompt: the last user message.
        answer: the response.
        rating: reward that people gave, in [-1, 1]. ``None`` if unrated.
        style: of its user (``user_style``). ``None`` if unknown.
        length_words: words that are not too many.
    """
    vector = hashed_ngrams(answer)
    n_words = len(words_of(answer))
    return {
        "rating": None if rating is None else (rating + 1.0) / 2.0,
        "similarity": ngram_similarity(hashed_ngrams(prompt), vector),
        "style": None if style is None else ngram_similarity(style, vector),
        "length": min(1.0, length_words / n_words) if n_words else 0.0,
    }


def user_style(liked: Sequence[Floats]) -> Floats | None:
    """Return the mean vector of answers that a user rated 4 or 5 or thumbs up, (n_features,).

    Args:
        liked: ``hashed_ngrams`` of each, oldest first, without the answer that is to be rewarded: it
            would be like itself.

    Returns:
        ``None`` for fewer than ``LEAST_LIKED``.
    """
    if len(liked) < LEAST_LIKED:
        return None
    mean: Floats = np.mean(liked[-MOST_LIKED:], axis=0)
    return mean


def answer_reward(
    parts: Mapping[str, float | None],
    blend: "RewardConfig",
    flags: Sequence[SafetyRule] = (),
) -> AnswerReward:
    """Return the reward of an answer by its parts.

    Raises:
        FeedbackRefusedError: a part is outside [0, 1], or none of ``PART_NAMES``.
    """
    for name, value in parts.items():
        if name not in PART_NAMES:
            rule, fix = f"must be named {', '.join(PART_NAMES)}", "Leave it out."
            raise refused("parts", rule, name, fix)
        if value is not None and not 0.0 <= value <= 1.0:
            fix = "Map it to [0, 1]: a product of two negatives would praise."
            raise refused(f"parts.{name}", "must lie in [0, 1]", str(value), fix)
    blended = None if parts.get("rating") is None else _blended(parts, blend)
    training = blended if blended is None or not flags else UNSAFE_REWARD
    return AnswerReward(parts=dict(parts), blended=blended, training=training, flags=tuple(flags))


def _blended(parts: Mapping[str, float | None], blend: "RewardConfig") -> float:
    known = [
        (value, weight)
        for name, weight in blend.weights.items()
        if (value := parts.get(name)) is not None and weight > 0.0
    ]
    total = sum(weight for _, weight in known)
    if blend.mode == "additive":
        mean = sum(value * weight for value, weight in known) / total
    else:
        mean = math.prod(math.pow(value, weight / total) for value, weight in known)
    return min(1.0, max(-1.0, 2.0 * mean - 1.0))
