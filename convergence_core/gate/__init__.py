"""Promotion gates: tests whose verdicts stay valid however often you check.

``PairedGate`` compares candidate and champion on the same cases, ``BestArmTest`` finds the best of
several arms in live traffic, ``Guard`` watches what was promoted. All test by betting
(``betting``), which has confidence sequences too; ``intervals`` has the bounds of one look.
"""

from convergence_core.gate.best_arm_test import (
    BestArmTest,
    Design,
    RewardedRequests,
    TrafficPlan,
    even_plan,
    verdict_plan,
)
from convergence_core.gate.guard import Guard, gains_against_champion
from convergence_core.gate.paired import (
    PairedGate,
    PairedVerdict,
    VerdictForecast,
    level_of_look,
    share_left,
)

__all__ = [
    "BestArmTest",
    "Design",
    "Guard",
    "PairedGate",
    "PairedVerdict",
    "RewardedRequests",
    "TrafficPlan",
    "VerdictForecast",
    "even_plan",
    "gains_against_champion",
    "level_of_look",
    "share_left",
    "verdict_plan",
]
