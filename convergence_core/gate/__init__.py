"""Promotion: evidence that stays valid however often one looks.

``PairedGate`` judges candidate against champion on the same cases, ``Contest`` finds the best of
several arms in live traffic, ``Guard`` watches what was promoted. All rest on betting
(``betting``, ``bets``); ``bernoulli`` has the closed forms for counts.
"""

from convergence_core.gate.allocation import Plan, even_plan, verdict_plan
from convergence_core.gate.best_arm_test import Contest, Design, Outcomes
from convergence_core.gate.guard import Guard, gains_against_champion, gains_against_level
from convergence_core.gate.paired import PairedGate, PairedVerdict

__all__ = [
    "Contest",
    "Design",
    "Guard",
    "Outcomes",
    "PairedGate",
    "PairedVerdict",
    "Plan",
    "even_plan",
    "gains_against_champion",
    "gains_against_level",
    "verdict_plan",
]
