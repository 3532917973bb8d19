"""Assumptions of verdicts, in one wording for every surface.

A bet is fair only if the mean of the next reward, given those already seen, is the arm's own.
"""

TRAFFIC = (
    "This holds if the arms' mean rewards stay as they are and requests are independent. A false winner "
    "is likely if rewards are missing more often from one arm, if an arm's level wanders or changes in "
    "bursts, or if similar requests come in clusters without `sticky`."
)
"""Of a winner by live traffic, and of a guard's verdict."""

CASES = (
    "Cases count as independent. Inputs that share most of their words form one group automatically. "
    "Paraphrases in other words need a common `group`, or a false promotion is likely."
)
"""Of the paired gate."""

PERFECT_DEFAULTS = "the defaults have the highest score on"
"""How the reason of a run begins whose defaults leave nothing to gain."""

LEAST_FORECAST = 10
"""Pairs of held-out cases below which nothing is forecast."""
