"""Promotion: evidence that stays valid however often one looks.

``PairedGate`` judges candidate against champion on the same cases, ``BestArmTest`` finds the best of
several arms in live traffic, ``Guard`` watches what was promoted. All rest on betting
(``betting``, ``bets``); ``bernoulli`` has the closed forms for counts.
"""

from convergence_core.gate.allocation import TrafficPlan, even_plan, verdict_plan
from convergence_core.gate.best_arm_test import BestArmTest, Design, RewardedRequests
from convergence_core.gate.guard import Guard, gains_against_champion, gains_against_level
from convergence_core.gate.paired import PairedGate, PairedVerdict

__all__ = [
    "BestArmTest",
    "Design",
    "Guard",
    "PairedGate",
    "PairedVerdict",
    "RewardedRequests",
    "TrafficPlan",
    "even_plan",
    "gains_against_champion",
    "gains_against_level",
    "verdict_plan",
]
