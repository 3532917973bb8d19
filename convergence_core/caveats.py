"""Assumptions of verdicts, in one wording for every surface.

A bet is fair only if the mean of the next reward, given those already seen, is the arm's own.
"""

TRAFFIC = (
    "This holds for arms whose mean rewards stay as they are, and for requests that are drawn "
    "independently. A false winner is likely where the delay of a reward depends on the outcome and "
    "the arm, where the level of an arm wanders or changes in bursts, "
    "and where like requests come in clusters, such as many of one user."
)
"""Of a winner by live traffic, and of a guard's verdict."""

CASES = (
    "Cases count as independent. Inputs that share most of their words form a group by themselves; "
    "paraphrases in other words need a common `group`, or a false promotion is likely."
)
"""Of the paired gate."""

PERFECT_DEFAULTS = "the defaults have the highest score on"
"""How the reason of a run begins whose defaults leave nothing to gain."""

LEAST_FORECAST = 10
"""Pairs of held-out cases below which nothing is forecast."""
