"""Price of the length of written texts, in reward.

    worth = mean reward - price (characters / 1000)                                      (1)

Decisions compare worths: which candidate gets cells, is eliminated, bred from or recommended, which
text is a parent, what an edit has gained. Rewards, as they are measured, stored, reported and judged by
the gate, hold no price.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from convergence_core.config import Configuration
from convergence_core.config.search_space import TextParam
from convergence_core.space import Choice
from convergence_core.space.arrays import Encoding, Points


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthPrice:
    """What texts of some parameters cost by their length."""

    per_1000: float
    """Reward that 1,000 characters cost."""
    parameters: tuple[str, ...]
    """Text parameters that are priced."""

    @classmethod
    def of(cls, configuration: Configuration) -> Self | None:
        """Return ``prompts.length_price`` of texts with ``mutate``; ``None``: length is free."""
        price = configuration.prompts.length_price
        named = tuple(
            name
            for name, parameter in configuration.search_space.parameters.items()
            if isinstance(parameter, TextParam) and parameter.mutate
        )
        return cls(per_1000=price, parameters=named) if price and named else None

    def of_text(self, text: str) -> float:
        """Return what a text costs."""
        return self.per_1000 * len(text) / 1000.0

    def of_points(self, encoding: Encoding, points: Points) -> np.ndarray:
        """Return what candidates' texts cost together (eq. 1), inactive ones nothing, (n,)."""
        prices = np.zeros(len(points))
        for j, name in enumerate(encoding.choice_names):
            parameter = encoding.space.parameters[name]
            if name in self.parameters and isinstance(parameter, Choice):
                costs = [self.of_text(str(text)) for text in parameter.choices]
                prices += np.array([*costs, 0.0])[points.codes[:, j]]
        return prices


def prices(price: LengthPrice | None, texts: Mapping[str, object]) -> dict[str, float]:
    """Return text → what it costs; ``None`` is no price."""
    return {text: 0.0 if price is None else price.of_text(text) for text in texts}
