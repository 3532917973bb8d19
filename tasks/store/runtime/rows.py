"""Rows of the runtime state, as values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from convergence_core.records import Json
from tasks.secrets.process_redaction import stored_json

LookKind = Literal["holdout", "traffic", "guard"]
ArmKind = Literal["beta", "gaussian", "linear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmOffer:
    """An arm to put on offer."""

    arm_id: str
    params: Mapping[str, Json]
    prior_alpha: float = 1.0
    prior_beta: float = 1.0
    prior: Mapping[str, Json] | None = None
    """Where the prior comes from, for people; ``None``: no opinion."""
    run_id: str | None = None
    cost: float | None = None
    """What a request costs, until rewards come with costs; ``None``: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArm:
    """An arm and its posterior."""

    arm_id: str
    params: Mapping[str, Json]
    prior: Mapping[str, Json] | None
    base_alpha: float
    base_beta: float
    base_seq: int
    """Rewards up to this number are in the base."""
    alpha: float
    beta: float
    n: int
    """Rewards learned from since the arm was made."""
    run_id: str | None
    is_retired: bool
    squares: float = 0.0
    """Sum of squared rewards, discounted like the counts."""
    stated_cost: float | None = None
    n_costs: int = 0
    costs: float = 0.0
    """Sum of the costs that came with rewards."""

    @property
    def cost(self) -> float | None:
        """What a request costs: the mean of those that came with rewards, else as stated; ``None``: unknown."""
        return self.costs / self.n_costs if self.n_costs else self.stated_cost

    @property
    def prior_mean(self) -> float | None:
        """Mean reward that a night measured; ``None``: there is no prior."""
        found = None if self.prior is None else self.prior.get("mean")
        return float(found) if isinstance(found, int | float) else None

    @property
    def mean(self) -> float:
        """Posterior mean of the reward, of arms whose rewards lie in [0, 1]."""
        return self.alpha / (self.alpha + self.beta)

    @property
    def state(self) -> dict[str, Any]:
        """The arm as callers see it."""
        names = ("arm_id", "alpha", "beta", "mean", "n", "prior", "cost")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One system and agent type."""

    group_id: int
    n: int
    """Rewards learned from."""
    version: int
    """Latest policy; 0: none yet."""
    revision: int
    """Raised when arms come, go or change by something else than a reward."""
    explore_until: int
    """Number of rewards until which exploration is raised."""
    trust: float
    """In the nightly priors, before any reward."""
    kind: ArmKind = "beta"
    """Model of an arm's rewards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """One version of the propensities."""

    version: int
    mode: str
    n: int
    """Rewards behind it."""
    arms: tuple[str, ...]
    shares: tuple[float, ...]
    design: Mapping[str, Json]
    """What the evidence on its requests rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDecision:
    """A decision about to be logged."""

    decision_id: str
    user_id: str
    arm_id: str
    version: int
    propensity: float
    context_json: str | None
    created_us: int
    expires_us: int | None
    is_fresh: bool = True
    """Drawn for this request; false: kept by its unit."""
    unit: str | None = None
    """User or session that keeps its arm; ``None``: none does."""
    request_key: str | None = None
    """The caller's name of the request, under which it is answered alike. ``None``: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision and the first reward that closed it."""

    decision_id: str
    system: str
    agent_type: str
    user_id: str
    arm_id: str
    params: Mapping[str, Any]
    version: int
    propensity: float
    is_fresh: bool
    context_json: str | None
    created_us: int
    expires_us: int | None
    reward: float | None
    reward_status: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The reward of a decision, as a caller gives it."""

    user_id: str | None = None
    """The user that the decision served; ``None``: the decision's own."""
    decision_id: str | None = None
    """``None``: a default served."""
    reward: float | None = None
    signals: Mapping[str, float] | None = None
    engagement_score: float | None = None
    grading_score: float | None = None
    metadata: Mapping[str, Any] | None = None
    cost: float | None = None
    """What the request cost, in the system's own unit."""

    def __post_init__(self) -> None:
        """Refuse a cost that is none.

        Raises:
            ValueError: it is below 0, or not finite.
        """
        if self.cost is not None and not 0.0 <= self.cost < math.inf:
            raise ValueError(f"a cost must be a number of 0 or more, but got {self.cost}")

    @property
    def details_json(self) -> str | None:
        """All that is members beside the reward; ``None``: nothing."""
        details: dict[str, Any] = {
            "signals": None if self.signals is None else dict(self.signals),
            "engagement_score": self.engagement_score,
            "grading_score": self.grading_score,
            "cost": self.cost,
            "metadata": None if self.metadata is None else dict(self.metadata),
        }
        members = {name: value for name, value in details.items() if value is not None}
        return stored_json(members) if members else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardTally:
    """Equal rewards of one policy version and arm, of fresh decisions."""

    version: int
    arm_id: str
    reward: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLook:
    """One look of a gate."""

    system: str
    kind: LookKind
    candidate_id: str | None
    champion_id: str | None
    run_id: str | None
    decision: str
    n: int
    """Pairs or rewards seen."""
    log_e: float
    """Evidence for the decision that is aimed at, nats."""
    log_threshold: float
    details: Mapping[str, Any]
    created_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """The candidate in production."""

    system: str
    candidate_id: str
    params: Mapping[str, Any]
    run_id: str | None
    reason: str
    created_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAlarm:
    """An alarm of drift."""

    seq: int
    system: str
    agent_type: str
    arm_id: str | None
    """``None``: of all arms together."""
    before: float
    """Mean reward before the change, roughly."""
    after: float
    """Mean reward since."""
    n: int
    """Rewards of the arm, or of all, by then, since the watch began."""
    created_us: int

    @property
    def what(self) -> str:
        """What has changed, in words."""
        return "all arms" if self.arm_id is None else f"arm {self.arm_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGuard:
    """The watch over a promotion."""

    seq: int
    promoted: str
    """Arm that was promoted."""
    champion: str
    """Arm of the champion before it."""
    since: int
    """Policy version at the promotion; later ones are evidence."""
    alpha: float
    tolerance: float
    """How much worse the promoted one may be."""
    holdback: float
    """Share of the requests that the champion keeps while the guard watches."""
    decision: str
    """``watching``, ``rollback`` or ``confirmed``."""
