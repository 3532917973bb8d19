"""Least cost at a held quality: shares and standing of stored arms."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convergence_core.bandit import QualityConstraint
from convergence_core.bandit.constraints import ConstrainedPlan, Standing
from tasks.serving.settings import RuntimeConfig
from tasks.store.runtime.rows import StoredArm


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmQuality:
    """Quality and cost of an arm, as far as they are known."""

    arm_id: str
    standing: Standing
    low: float
    high: float
    """Confidence sequence of its mean reward."""
    cost: float | None
    """Mean cost of a request; ``None`` if unknown."""
    serves: bool
    """Whether most requests go to it."""


def quality_plan(settings: RuntimeConfig, arms: Sequence[StoredArm]) -> ConstrainedPlan:
    """Return the shares of all arms that were ever on offer.

    Nightly priors do not count: what is held is held by rewards. An arm of unknown cost is taken for
    as cheap as the cheapest, so that it gets requests, and its cost becomes known.

    Args:
        settings: of mode ``quality``.
        arms: in order of arrival, one at least on offer.
    """
    constraint = QualityConstraint(
        least=settings.least_quality or 0.0,
        confidence=1.0 - settings.alpha,
        explore=settings.explore_cheaper,
    )
    good = np.array([arm.alpha - arm.base_alpha for arm in arms])
    bad = np.array([arm.beta - arm.base_beta for arm in arms])
    known = [arm.cost for arm in arms if arm.cost is not None]
    cheapest = min(known, default=0.0)
    return constraint.plan(
        np.maximum(good, 0.0),
        np.maximum(good, 0.0) + np.maximum(bad, 0.0),
        [cheapest if arm.cost is None else arm.cost for arm in arms],
        [not arm.is_retired for arm in arms],
    )


def quality_of(settings: RuntimeConfig, arms: Sequence[StoredArm]) -> tuple[ArmQuality, ...]:
    """Return what is known of each arm that is on offer; see ``quality_plan``."""
    plan = quality_plan(settings, arms)
    return tuple(
        ArmQuality(
            arm_id=arm.arm_id,
            standing=plan.standing[index],
            low=plan.lows[index],
            high=plan.highs[index],
            cost=arm.cost,
            serves=index == plan.serving,
        )
        for index, arm in enumerate(arms)
        if not arm.is_retired
    )
