"""Whether a judge's marks wander from grounded ones: a two-sided CUSUM (Page 1954).

    z_t = ((judge mean - grounded mean) - m) / s,    S+ = max(0, S+ + z - .5),    S- likewise

m and s are those of rounds 1 to 8. An alarm is a sum above 5: without drift one in 464 rounds, and a
shift by one deviation is caught in 10.4.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from convergence_core.records import Json

N_FIRST: Final = 8
"""Rounds that say what is usual."""
SLACK: Final = 0.5
LIMIT: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The two sums."""

    first: tuple[float, ...] = ()
    """Differences of the first rounds."""
    up: float = 0.0
    down: float = 0.0

    @property
    def is_alarming(self) -> bool:
        """Whether a sum is above the limit."""
        return max(self.up, self.down) > LIMIT

    def after(self, judge_mean: float, grounded_mean: float) -> "Drift":
        """Return the state after a round."""
        difference = judge_mean - grounded_mean
        if len(self.first) < N_FIRST:
            return replace(self, first=(*self.first, difference))
        usual = np.array(self.first)
        # Rounds that are all alike would make any change infinite.
        z = (difference - float(usual.mean())) / max(1e-9, float(usual.std(ddof=1)))
        return replace(
            self, up=max(0.0, self.up + z - SLACK), down=max(0.0, self.down - z - SLACK)
        )

    def to_json(self) -> dict[str, Json]:
        """Return a JSON value from which ``from_json`` makes an equal state."""
        return {"first": [*self.first], "up": self.up, "down": self.down}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Drift":
        """Rebuild a state from ``to_json``."""
        return cls(
            first=tuple(float(x) for x in value["first"]), up=value["up"], down=value["down"]
        )
