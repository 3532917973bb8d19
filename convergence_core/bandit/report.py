"""Gain of routing by case, as a result holds it.

Commands read these and compute nothing, so no NumPy is imported here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Estimate of what routing by case would earn over the single best candidate."""

    n_cases: int
    n_groups: int
    """Independent ones."""
    n_candidates: int
    """Compared."""
    level: float
    """Probability that the interval covers the gain."""
    texts: str = ""
    """Name of the embedding of the cases' texts; empty: hashed n-grams."""
    missing: str = ""
    """Why there is no estimate; empty: there is one."""
    single: float = 0.0
    """Mean reward of the candidate that is best on average."""
    gain: float = 0.0
    """Of routing over it."""
    low: float = 0.0
    high: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)
    """Candidate → share of the cases that go to it."""
    night: Mapping[str, Any] | None = None
    """State of contextual arms, these candidates in this order, that learned the cases; ``None`` where the
    interval is not above 0."""
