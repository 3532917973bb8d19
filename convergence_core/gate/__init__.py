"""Promotion gates: tests whose verdicts stay valid however often you check.

``PairedGate`` compares candidate and champion on the same cases. ``BestArmTest`` finds the best of
several arms in live traffic. ``Guard`` monitors a promotion. The latter two test by betting
(``betting``). ``intervals`` has confidence bounds for a single look.
"""
