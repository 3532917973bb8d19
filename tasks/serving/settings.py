"""How a system serves: what the store keeps of it, for every process that serves or folds."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from convergence_core.records import Json
from tasks.store.runtime.rows import ArmKind
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.writes import RewardTerms

Mode = Literal["regret", "verdict", "quality"]
Sticky = Literal["none", "user", "session"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSettings:
    """How a system serves."""

    kind: ArmKind = "beta"
    """What is believed of an arm's rewards: a mean of numbers in [0, 1], a mean of numbers of any
    size, or a mean that depends on the request."""
    reward_mean: float = 0.5
    """Gaussian arms: reward that is expected before there is one."""
    reward_sd: float = 0.5
    """Gaussian arms: its standard deviation."""
    n_features: int = 16
    """Linear arms: coordinates of a request."""
    pooling: float = 0.5
    """Linear arms: how far a user or an agent type may lie from all others."""
    mode: Mode = "regret"
    """``regret``: Thompson sampling; ``verdict``: the shares that decide soonest; ``quality``: the
    cheapest arm whose mean reward is held at ``least_quality``."""
    least_quality: float | None = None
    """Mode ``quality``: the mean reward, in (0, 1)."""
    explore_cheaper: float = 0.1
    """Mode ``quality``: share of the requests for cheaper arms that are undecided, in [0, 1]."""
    sticky: Sticky = "none"
    """Who keeps an arm: nobody, each user, or each session (``context["session_id"]``)."""
    floor: float = 0.02
    """Share of the requests that is spread evenly over all arms, in [0, 1]."""
    alpha: float = 0.05
    """Largest probability of naming a winner that is none."""
    min_effect: float = 0.0
    """Least difference in mean reward that makes a winner."""
    expires_after_s: float | None = 86_400.0
    """Seconds after which a reward is late; ``None``: never."""
    late_counts: bool = False
    """Whether the posterior learns from late rewards."""
    discount: float = 1.0
    """Share of its evidence that an arm keeps at each of its rewards, in (0, 1]."""
    rewards_per_false_alarm: float | None = None
    """Watch for drift, with so many rewards from one false alarm to the next at least; ``None``:
    do not watch."""
    explore_after_alarm: float = 0.2
    """Share of the requests spread evenly after an alarm."""
    explore_for: int = 100
    """Rewards for which it is."""

    @property
    def terms(self) -> RewardTerms:
        """How rewards are taken in."""
        return RewardTerms(
            discount=self.discount,
            late_counts=self.late_counts,
            rewards_per_false_alarm=self.rewards_per_false_alarm,
            explore_for=self.explore_for,
        )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "ServingSettings":
        """Return the settings among these values; what is not there has its default."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


def stored_settings(store: RuntimeStore, system: str) -> ServingSettings:
    """Return how a system serves; the defaults if nobody ever said."""
    found: Mapping[str, Json] = store.settings(system) or {}
    return ServingSettings.of(found)
