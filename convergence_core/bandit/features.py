"""Feature vectors of requests, by hashing, with users partially pooled.

A number enters as it is. A category becomes one coordinate with a sign, both from a hash of name and
value (K. Weinberger et al., "Feature hashing for large scale multitask learning", 2009, eq. 1), so
that no list of values has to be kept and collisions cancel in the mean. Hashes are BLAKE2's, the same
in every process.

*Partial pooling.* Every feature enters once for all users, and the constant once more for this user
and for this agent type, times ``pooling``. Under a ridge prior a coordinate scaled by s has a prior
deviation of s: how far a user may lie from the rest, until own rewards show it. It is the random
intercept of a mixed model, hashed as Weinberger et al. do for users of a spam filter.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from convergence_core.bandit.propensities import Floats

Feature = float | int | bool | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Settings of the encoding of requests."""

    n_features: int = 16
    """Coordinates, the constant's one included."""
    pooling: float = 0.5
    """Scale of the user's and the agent type's own coordinates; 0: all users are alike."""

    def __post_init__(self) -> None:
        """Refuse settings without meaning.

        Raises:
            ValueError: fewer than two coordinates, or a negative scale.
        """
        if self.n_features < 2 or not self.pooling >= 0.0:
            raise ValueError(
                f"n_features must be 2 or more and pooling 0 or more, but got {self.n_features} "
                f"and {self.pooling}"
            )

    def encode(
        self,
        context: Mapping[str, Feature],
        *,
        user_id: str | None = None,
        agent_type: str | None = None,
    ) -> Floats:
        """Return the vector of a request, (n_features,).

        Numbers should be of the size of 1. ``None`` is left out; a boolean is a category.

        Raises:
            ValueError: a number is not finite.
            TypeError: a value is neither number, text, boolean nor ``None``.
        """
        vector = np.zeros(self.n_features)
        vector[0] = 1.0
        for name, value in context.items():
            if value is None:
                continue
            if isinstance(value, bool | str):
                self._add(vector, f"{name}={value}", 1.0)
            elif isinstance(value, int | float):
                if not math.isfinite(value):
                    raise ValueError(f"context.{name} must be finite, but got {value}")
                self._add(vector, name, float(value))
            else:
                raise TypeError(
                    f"context.{name} must be a number, text or boolean, but got "
                    f"{type(value).__name__}"
                )
        for kind, value in (("user", user_id), ("agent", agent_type)):
            if value is not None and self.pooling:
                self._add(vector, f"{kind}\0{value}", self.pooling)
        return vector

    def _add(self, vector: Floats, text: str, value: float) -> None:
        index, sign = _hashed(text, self.n_features - 1)
        vector[1 + index] += sign * value  # (eq. 1)


@lru_cache(maxsize=65_536)
def _hashed(text: str, size: int) -> tuple[int, float]:
    """Return an index in [0, size) and a sign."""
    number = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    return (number >> 1) % size, 1.0 if number & 1 else -1.0
