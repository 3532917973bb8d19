"""Objective of a search: rewards from metrics, constraints, trade-offs, costs.

A point dominates another if it is nowhere lower and somewhere higher. The undominated points are
the front (Deb et al. 2002, NSGA-II, for the ranks and the crowding distance).

    reward = sum_m w_m s_m / sum_m w_m                                                             (1)
    s_m = (value - bad) / (good - bad), clipped to [0, 1]                                          (2)

Invalid values never become numbers: NaN and infinity are the evaluator's fault, and an unknown
value leaves the reward unknown.
"""

import math
from collections.abc import Iterable, Mapping, Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from convergence_core.records import FaultName

AUGMENTATION = 0.05
"""Weight of the sum in a scalarization, and in an end of a front, so that no dominated point wins;
rho of Knowles (2006)."""
MARGIN = 0.15
"""Distance of a front's reference point below its ends, in units of its range, so that the ends
count. A smaller margin reduces the crowding of ends, and a front hidden by noise grows more
slowly."""
_REMEDIES = {
    "cost_usd": ": return the cost with every answer, write `prices`, or give the metric `weight: 0`"
}
"""Type of metric → fix that makes its value known."""
MIN_RANGE = 1e-6
"""Minimum range of a front."""
ROUNDING = 1e-9
"""Distance beyond a bound that counts as rounding, relative to the bound or the range [0, 1]: a
cosine of equal vectors is 1.0000000000000002."""


def dominated(values: np.ndarray) -> np.ndarray:
    """Return which rows another row dominates; equal rows do not dominate each other.

    Args:
        values: Objective values, (n, n_objectives).

    Returns:
        Booleans, (n,).
    """
    is_dominated = np.zeros(len(values), dtype=bool)
    for i, row in enumerate(values):
        is_dominated[i] = bool(np.any((values >= row).all(axis=1) & (values > row).any(axis=1)))
    return is_dominated


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the index of each row's front: 0 for the first, 1 for the next without it, … (n,)."""
    rank = np.zeros(len(values), dtype=np.intp)
    left = np.arange(len(values))
    number = 0
    while len(left):
        behind = dominated(values[left])
        rank[left[~behind]] = number
        left, number = left[behind], number + 1
    return rank


def crowding(values: np.ndarray) -> np.ndarray:
    """Return each row's crowding distance, the distance between its neighbours, (n,).

    Infinite at the ends; in units of the range per objective.
    """
    room = np.zeros(len(values))
    for column in values.T:
        order = np.argsort(column, kind="stable")
        width = float(column[order[-1]] - column[order[0]]) if len(order) else 0.0
        if width <= 0:
            continue
        room[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / width
        room[order[[0, -1]]] = np.inf
    return room


def best_first(values: np.ndarray) -> np.ndarray:
    """Return rows by front, within a front by decreasing crowding distance, (n,)."""
    rank = ranks(values)
    room = np.zeros(len(values))
    for number in np.unique(rank):
        rows = np.flatnonzero(rank == number)
        room[rows] = crowding(values[rows])
    return np.lexsort((-room, rank))


def on_front(values: np.ndarray) -> np.ndarray:
    """Return values in units of the range between their front's ends, above its reference point.

    An end is the row with the best value in one objective, plus ``AUGMENTATION`` of the others.
    Without that term, luck alone would place the best of several equal rows far out in another
    objective. So a metric with little variation has two ends as well (payoff table, Benayoun et
    al. 1971, *Math. Program.* 1:366).

    Args:
        values: Values of one draw, (n, n_objectives).

    Returns:
        Scaled values, (n, n_objectives).
    """
    units = values / np.maximum(np.ptp(values, axis=0), MIN_RANGE)
    ends = values[(units + AUGMENTATION * units.sum(axis=1, keepdims=True)).argmax(axis=0)]
    low, high = ends.min(axis=0), ends.max(axis=0)
    return np.asarray((values - low) / np.maximum(high - low, MIN_RANGE) + MARGIN, np.float64)


def scalarize(values: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Return how far values reach along a direction: Golovin & Zhang 2020, §3, augmented.

        min_j v_j / d_j + rho sum_j v_j                                                            (3)

    Its mean over uniform directions is the dominated volume, for any shape of front. A
    scalarization that starts at the best value of each metric is flat towards the ends of a
    concave front, where luck in a single metric wins.

    Args:
        values: Values above the reference point, (..., n_objectives).
        direction: Positive direction of length 1, (n_objectives,).
    """
    least = (values / np.maximum(direction, MIN_RANGE)).min(axis=-1)
    return np.asarray(least + AUGMENTATION * values.sum(axis=-1), np.float64)  # (eq. 3)


if TYPE_CHECKING:
    from convergence_core.config.evaluation import BaseMetric


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Reward of a cell, or the reason why it is missing."""

    reward: float | None
    """Reward in [0, 1]; ``None`` if missing."""
    reason: str | None = None
    """Why the reward is missing, or 0 because of a constraint; ``None`` otherwise."""
    fault: FaultName | None = None
    """``candidate`` for a violated constraint, ``evaluator`` if there is no usable number."""


@dataclass(frozen=True, slots=True)
class RewardModel:
    """Reward model with the configured metrics.

    Example:
        >>> model = RewardModel(configuration.evaluation.metrics)
        >>> model.score({"exact_match": 1.0}).reward
        1.0
    """

    metrics: "Mapping[str, BaseMetric]"
    """Name → metric, at least one with a positive weight."""

    def score(
        self, metrics: Mapping[str, float | None], left_out: AbstractSet[str] = frozenset()
    ) -> Scored:
        """Return the reward of one cell; an absent metric counts as unknown.

        Args:
            metrics: Name → value.
            left_out: Metrics that do not apply to the cell's case; the others share their weight.
        """
        known = [(name, metric, metrics.get(name)) for name, metric in self.metrics.items()]
        for name, _, value in known:
            if value is not None and not math.isfinite(value) and self.depends_on(name):
                return _missing(f"metric {name} is {value}, not a finite number")
        for name, metric, value in known:
            reason = None if value is None else _broken(name, metric, value)
            if reason is not None:
                return Scored(reward=0.0, reason=reason, fault="candidate")
        parts: list[float] = []
        weights: list[float] = []
        for name, metric, value in known:
            if metric.weight == 0 or name in left_out:
                continue
            if value is None:
                return _missing(f"metric {name} is unknown{_REMEDIES.get(metric.type, '')}")
            scaled = _scaled(metric, value)
            if scaled is None:
                return _missing(
                    f"metric {name} is {_shown(value, 0.0 if value < 0 else 1.0)}, outside [0, 1]: "
                    f"give `scale: {{good: …, bad: …}}` under `evaluation.metrics.{name}`"
                )
            parts.append(metric.weight * scaled)
            weights.append(metric.weight)
        if not weights:
            return _missing("no metric with a weight applies to this test case")
        return Scored(reward=min(1.0, max(0.0, math.fsum(parts) / math.fsum(weights))))  # (eq. 1)

    def depends_on(self, name: str) -> bool:
        """Return whether a metric can change the reward: it has a weight or a hard constraint."""
        metric = self.metrics.get(name)
        return metric is not None and (metric.weight > 0 or metric.is_constrained)

    def worst(self, names: Iterable[str]) -> dict[str, float]:
        """Return metric → value with reward 0, for metrics with a weight."""
        rules = {name: self.metrics[name] for name in names if name in self.metrics}
        return {
            name: float(rule.direction == "lower") if rule.scale is None else rule.scale.bad
            for name, rule in rules.items()
            if rule.weight
        }

    @property
    def has_constraints(self) -> bool:
        """Whether any metric has a hard constraint."""
        return any(metric.is_constrained for metric in self.metrics.values())

    def breaks(self, metrics: Mapping[str, float | None]) -> bool | None:
        """Return whether a cell violates a hard constraint.

        ``None`` if some constrained metric is unknown and no other violates its constraint.
        """
        unknown = False
        for name, metric in self.metrics.items():
            if not metric.is_constrained:
                continue
            value = metrics.get(name)
            if value is None or not math.isfinite(value):
                unknown = True
            elif _broken(name, metric, value) is not None:
                return True
        return None if unknown else False

    def parts(self, metrics: Mapping[str, float | None]) -> dict[str, float]:
        """Return metric → value on its scale, in [0, 1], regardless of hard constraints.

        Metrics without a weight, unknown values and values outside any scale are absent.
        """
        parts: dict[str, float] = {}
        for name, metric in self.metrics.items():
            value = metrics.get(name)
            scaled = None
            if metric.weight and value is not None and math.isfinite(value):
                scaled = _scaled(metric, value)
            if scaled is not None:
                parts[name] = scaled
        return parts


def _broken(name: str, metric: "BaseMetric", value: float) -> str | None:
    """Return the constraint that a value violates, or ``None``."""
    for sign, bound in (("<=", metric.max), (">=", metric.min)):
        is_beyond = bound is not None and (value > bound if sign == "<=" else value < bound)
        if bound is not None and is_beyond and not math.isclose(value, bound, rel_tol=ROUNDING):
            return f"constraint {name} {sign} {bound:g} (was {_shown(value, bound)})"
    return None


def _shown(value: float, bound: float) -> str:
    """Return a value with as many digits as distinguish it from a bound."""
    short = f"{value:g}"
    return short if float(short) != float(f"{bound:g}") else repr(value)


def _scaled(metric: "BaseMetric", value: float) -> float | None:
    """Return a finite value on its metric's scale, in [0, 1]; ``None`` if outside any scale."""
    if metric.scale is not None:
        good, bad = metric.scale.good, metric.scale.bad
        return min(1.0, max(0.0, (value - bad) / (good - bad)))  # (eq. 2)
    if not -ROUNDING <= value <= 1.0 + ROUNDING:
        return None
    share = min(1.0, max(0.0, value))
    return share if metric.direction == "higher" else 1.0 - share


def _missing(reason: str) -> Scored:
    return Scored(reward=None, reason=reason, fault="evaluator")
