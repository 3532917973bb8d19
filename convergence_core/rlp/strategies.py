"""Strategies of thoughts: a task for the model, and its view of the history.

They are the actions of the policy. Action 0 is to think nothing; its reward is 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from convergence_core.rlp import views
from convergence_core.rlp.views import View

NO_THOUGHT: Final = "none"
"""Name of action 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One kind of thought."""

    name: str
    persona: str
    """Of the model, in the words of the prompt."""
    task: str
    view: View


STRATEGIES: Final[Mapping[str, Strategy]] = {
    strategy.name: strategy
    for strategy in (
        Strategy(
            name="winners",
            persona="an engineer who looks for what good settings have in common",
            task="Say what the best trials have in common and what is likely to do well next.",
            view=views.winners,
        ),
        Strategy(
            name="contrast",
            persona="an analyst who compares extremes",
            task="Say what tells the best trials from the worst.",
            view=views.contrast,
        ),
        Strategy(
            name="trends",
            persona="a statistician who looks at one parameter at a time",
            task="Say for each parameter which values raise the reward, and how much.",
            view=views.trends,
        ),
        Strategy(
            name="interactions",
            persona="a statistician who looks at pairs of parameters",
            task="Say which values do well only together.",
            view=views.interactions,
        ),
        Strategy(
            name="failures",
            persona="a tester who asks why things break",
            task="Say which settings fail, and why, and which others will fail alike.",
            view=views.failures,
        ),
        Strategy(
            name="boundaries",
            persona="an explorer who asks whether the best lies at an edge",
            task="Say whether the reward still rises towards an end of a range.",
            view=views.boundaries,
        ),
        Strategy(
            name="costs",
            persona="an owner who weighs reward, latency and price",
            task="Say how latency and price enter the reward, and which settings balance them.",
            view=views.costs,
        ),
        Strategy(
            name="novelty",
            persona="a sceptic who asks what nobody has tried",
            task="Say what untried values are likely to be worth, from what is known.",
            view=views.novelty,
        ),
    )
}
"""By name, in the order of the policy's actions from 1."""
