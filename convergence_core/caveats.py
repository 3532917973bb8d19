"""Assumptions of verdicts, worded once for every surface.

A bet is fair only if the expected next reward, given the earlier ones, is the arm's mean.
"""

TRAFFIC = (
    "This holds if the arms' mean rewards stay as they are and requests are independent. A false winner "
    "is likely if rewards are missing more often from one arm, if an arm's level wanders or changes in "
    "bursts, or if similar requests come in clusters without `sticky`."
)
"""Caveat for a winner in live traffic, and for a guard's verdict."""

CASES = (
    "Cases count as independent. Inputs that share most of their words form one group automatically. "
    "Paraphrases in other words need a common `group`, or a false promotion is likely."
)
"""Caveat for the paired gate."""

PERFECT_DEFAULTS = "the defaults have the highest score on"
"""Start of a run's reason if the defaults cannot be improved."""

LEAST_FORECAST = 10
"""Minimum pairs of held-out cases for a forecast."""
