"""Promotion gates: tests whose verdicts stay valid however often you check.

``PairedGate`` compares candidate and champion on the same cases, ``BestArmTest`` finds the best of
several arms in live traffic, ``Guard`` watches what was promoted. All test by betting
(``betting``), which has confidence sequences too; ``intervals`` has the bounds of one look.
"""
