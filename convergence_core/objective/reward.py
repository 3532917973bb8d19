"""Reward of a cell from its metrics: direction, scale, weights, hard constraints.

    reward = sum_m w_m s_m / sum_m w_m                                                             (1)
    s_m = (value - bad) / (good - bad), cut to [0, 1]                                              (2)

What is broken is never turned into a number: NaN and infinity are the evaluator's fault, an unknown
value leaves the reward unknown.
"""

import math
from collections.abc import Mapping, Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from convergence_core.records import FaultName

if TYPE_CHECKING:
    from convergence_core.config import MetricConfig

GOOD_LATENCY_MS, BAD_LATENCY_MS = 0.0, 5000.0
"""Version 0.1's default: 1 - ms / 5000."""
GOOD_COST_USD, BAD_COST_USD = 0.0, 1.0
"""Version 0.1's default: 1 - $ / 1."""

_DEFAULT_SCALES = {
    "latency_ms": (GOOD_LATENCY_MS, BAD_LATENCY_MS),
    "cost_usd": (GOOD_COST_USD, BAD_COST_USD),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Reward of a cell, with the reason where there is none."""

    reward: float | None
    """In [0, 1]; ``None``: missing."""
    reason: str | None = None
    """Why it is 0 by constraint, or missing; ``None`` otherwise."""
    fault: FaultName | None = None
    """``candidate`` for a broken constraint, ``evaluator`` for no usable number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRule:
    """Part of one metric in the reward."""

    name: str
    weight: float = 1.0
    """Share in the reward, relative to the others; 0: constrained and shown only."""
    direction: Literal["higher", "lower"] = "higher"
    """Used where there is no scale: which end of [0, 1] is good."""
    good: float | None = None
    """Value worth 1; ``None``: values must lie in [0, 1]."""
    bad: float | None = None
    """Value worth 0; ``None`` together with ``good``."""
    minimum: float | None = None
    """Hard constraint."""
    maximum: float | None = None
    """Hard constraint."""

    def __post_init__(self) -> None:
        """Refuse half a scale and one without width."""
        if (self.good is None) != (self.bad is None) or (
            self.good is not None and self.good == self.bad
        ):
            raise ValueError(f"the scale of `{self.name}` needs two different values")

    @property
    def is_constrained(self) -> bool:
        """Whether it has a hard constraint."""
        return self.minimum is not None or self.maximum is not None

    def broken(self, value: float) -> str | None:
        """Return the constraint that a value breaks."""
        if self.maximum is not None and value > self.maximum:
            return f"constraint {self.name} <= {self.maximum:g} (was {value:g})"
        if self.minimum is not None and value < self.minimum:
            return f"constraint {self.name} >= {self.minimum:g} (was {value:g})"
        return None

    def scaled(self, value: float) -> float | None:
        """Return a finite value on its scale, in [0, 1]; ``None``: no scale covers it."""
        if self.good is not None and self.bad is not None:
            return min(1.0, max(0.0, (value - self.bad) / (self.good - self.bad)))  # (eq. 2)
        if not 0.0 <= value <= 1.0:
            return None
        return value if self.direction == "higher" else 1.0 - value


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardModel:
    """All metrics' rules; scores one cell at a time."""

    rules: tuple[MetricRule, ...]

    def __post_init__(self) -> None:
        """Refuse metrics without weight.

        Raises:
            ValueError: no metric has a weight above 0.
        """
        if not math.fsum(rule.weight for rule in self.rules) > 0:
            raise ValueError("at least one metric needs a weight above 0")

    @classmethod
    def from_config(cls, metrics: Mapping[str, "MetricConfig"]) -> "RewardModel":
        """Build the model of ``evaluation.metrics``.

        Raises:
            ValueError: no metric has a weight above 0, or a scale has no width.
        """
        return cls(rules=tuple(_rule(name, metric) for name, metric in metrics.items()))

    def score(
        self, metrics: Mapping[str, float | None], left_out: AbstractSet[str] = frozenset()
    ) -> Scored:
        """Return the reward of one cell; an absent metric counts as unknown.

        Args:
            metrics: name → value.
            left_out: metrics that do not apply to the cell's case: the others share their weight.
        """
        known = [(rule, metrics.get(rule.name)) for rule in self.rules]
        for rule, value in known:
            if value is not None and not math.isfinite(value):
                return _missing(f"metric {rule.name} is {value}, not a finite number")
        for rule, value in known:
            reason = None if value is None else rule.broken(value)
            if reason is not None:
                return Scored(reward=0.0, reason=reason, fault="candidate")
        parts: list[float] = []
        weights: list[float] = []
        for rule, value in known:
            if rule.weight == 0 or rule.name in left_out:
                continue
            if value is None:
                return _missing(f"metric {rule.name} is unknown")
            scaled = rule.scaled(value)
            if scaled is None:
                return _missing(
                    f"metric {rule.name} is {value:g}, outside [0, 1]: "
                    f"give `scale: {{good: …, bad: …}}` under `evaluation.metrics.{rule.name}`"
                )
            parts.append(rule.weight * scaled)
            weights.append(rule.weight)
        if not weights:
            return _missing("no metric with a weight applies to this test case")
        return Scored(reward=min(1.0, max(0.0, math.fsum(parts) / math.fsum(weights))))  # (eq. 1)

    @property
    def has_constraints(self) -> bool:
        """Whether any metric has a hard constraint."""
        return any(rule.is_constrained for rule in self.rules)

    def breaks(self, metrics: Mapping[str, float | None]) -> bool | None:
        """Return whether a cell breaks a hard constraint.

        ``None``: of those whose metrics are known it breaks none, and not all of them are.
        """
        unknown = False
        for rule in self.rules:
            if not rule.is_constrained:
                continue
            value = metrics.get(rule.name)
            if value is None or not math.isfinite(value):
                unknown = True
            elif rule.broken(value) is not None:
                return True
        return None if unknown else False

    def parts(self, metrics: Mapping[str, float | None]) -> dict[str, float]:
        """Return metric → value on its scale, in [0, 1]; hard constraints do not matter.

        Absent are metrics without a weight, and values that are unknown or that no scale covers.
        """
        found: dict[str, float] = {}
        for rule in self.rules:
            value = metrics.get(rule.name)
            scaled = None
            if rule.weight and value is not None and math.isfinite(value):
                scaled = rule.scaled(value)
            if scaled is not None:
                found[rule.name] = scaled
        return found


def _missing(reason: str) -> Scored:
    return Scored(reward=None, reason=reason, fault="evaluator")


def _rule(name: str, metric: "MetricConfig") -> MetricRule:
    good, bad = _DEFAULT_SCALES.get(metric.type, (None, None))
    if metric.scale is not None:
        good, bad = metric.scale.good, metric.scale.bad
    return MetricRule(
        name=name,
        weight=metric.weight,
        direction=metric.direction,
        good=good,
        bad=bad,
        minimum=metric.min,
        maximum=metric.max,
    )
