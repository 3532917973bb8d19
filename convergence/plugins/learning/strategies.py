"""Strategies of thoughts: a persona and a task for the model.

They are the actions of the mixin's policy. Action 0 is to think nothing; its reward is 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Strategy:
    """One kind of thought."""

    name: str
    persona: str
    """Of the model, in the words of the prompt."""
    task: str


STRATEGIES: Final[Mapping[str, Strategy]] = {
    strategy.name: strategy
    for strategy in (
        Strategy("winners", "an engineer who looks for what good settings have in common",
                 "Say what the best trials have in common and what is likely to do well next."),
        Strategy("contrast", "an analyst who compares extremes",
                 "Say what tells the best trials from the worst."),
        Strategy("trends", "a statistician who looks at one parameter at a time",
                 "Say for each parameter which values raise the reward, and how much."),
        Strategy("interactions", "a statistician who looks at pairs of parameters",
                 "Say which values do well only together."),
        Strategy("failures", "a tester who asks why things break",
                 "Say which settings fail, and why, and which others will fail alike."),
        Strategy("boundaries", "an explorer who asks whether the best lies at an edge",
                 "Say whether the reward still rises towards an end of a range."),
        Strategy("costs", "an owner who weighs reward, latency and price",
                 "Say how latency and price enter the reward, and which settings balance them."),
        Strategy("novelty", "a sceptic who asks what nobody has tried",
                 "Say what untried values are likely to be worth, from what is known."),
    )
}  # fmt: skip
"""By name, in the order of the policy's actions from 1."""
