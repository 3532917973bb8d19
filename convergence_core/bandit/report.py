"""Gain of routing by case, as stored in a result.

Commands read it without computing, so this module does not import NumPy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Estimated gain of routing by case over the best single candidate."""

    n_cases: int
    n_groups: int
    """Number of independent groups."""
    n_candidates: int
    """Number of compared candidates."""
    level: float
    """Coverage probability of the interval."""
    texts: str = ""
    """Name of the text embedding; empty means hashed n-grams."""
    missing: str = ""
    """Why there is no estimate; empty if there is one."""
    single: float = 0.0
    """Mean reward of the candidate with the best average."""
    gain: float = 0.0
    """Gain of routing over that candidate, in mean reward."""
    low: float = 0.0
    high: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)
    """Candidate → share of the cases routed to it."""
    night: Mapping[str, Any] | None = None
    """State of contextual arms fitted to the cases, in the order of ``shares``; ``None`` unless
    the interval is above 0."""
