"""Rows of the runtime state as records."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict

from convergence_core.field_types import Amount, Name, Outcome, Score, storable
from convergence_core.gate.guardrails import Guardrail
from convergence_core.records import Json, fields_of
from tasks.secrets.process_redaction import stored_json

if TYPE_CHECKING:
    from convergence_core.bandit.priors import NightlyPrior

LookKind = Literal["holdout", "traffic", "guard"]
ArmKind = Literal["beta", "linear"]
AlarmKind = Literal["drift", "sample_ratio", "missing_rewards"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmOffer:
    """Arm to activate."""

    arm_id: str
    params: Mapping[str, Json]
    prior: "NightlyPrior | None" = None
    """Prior of a nightly run; ``None`` if there is none."""
    cost: float | None = None
    """Cost of a request until rewards report costs; ``None`` if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArm:
    """Arm with its posterior."""

    arm_id: str
    params: Mapping[str, Json]
    prior: Mapping[str, Json] | None
    base_alpha: float
    base_beta: float
    alpha: float
    beta: float
    n: int
    """Number of rewards behind the posterior."""
    run_id: str | None
    is_retired: bool
    stated_cost: float | None = None
    n_costs: int = 0
    costs: float = 0.0

    @property
    def cost(self) -> float | None:
        """Mean reported cost of a request, else the stated cost; ``None`` if unknown."""
        return self.costs / self.n_costs if self.n_costs else self.stated_cost

    @property
    def prior_mean(self) -> float | None:
        """Mean reward measured by the nightly run; ``None`` without a prior."""
        mean = None if self.prior is None else self.prior.get("mean")
        return float(mean) if isinstance(mean, int | float) else None

    @property
    def mean(self) -> float:
        """Posterior mean of a reward in [0, 1]."""
        return self.alpha / (self.alpha + self.beta)

    @property
    def state(self) -> dict[str, Any]:
        """State of the arm for callers."""
        return fields_of(self, "arm_id", "alpha", "beta", "mean", "n", "prior", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Arms of one system and agent type."""

    group_id: int
    n: int
    """Number of rewards behind the posteriors."""
    version: int
    """Version of the latest policy; 0 before the first."""
    revision: int
    """Revision of the arms; increases with each change other than a reward."""
    explore_until: int
    """Number of rewards up to which exploration is raised."""
    trust: float
    """Trust in the nightly priors before any reward, in [0, 1]."""
    kind: ArmKind = "beta"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """Version of the choice probabilities."""

    version: int
    mode: str
    n: int
    """Number of rewards behind it."""
    arms: tuple[str, ...]
    shares: tuple[float, ...]
    design: Mapping[str, Json]
    """Design assumptions behind the evidence of its requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedDecision:
    """Decision as it is logged."""

    decision_id: str
    user_id: str
    arm_id: str
    version: int
    propensity: float
    context_json: str | None
    created_us: int
    expires_us: int | None
    """First moment, in microseconds, at which a reward is too late. ``None`` means never, 0 that
    none is awaited.
    """
    is_fresh: bool
    """Whether this request sampled the arm; false if its user or session kept it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDecision(LoggedDecision):
    """Decision to log."""

    is_fresh: bool = True
    unit: str | None = None
    """User or session that keeps its arm; ``None`` if arms are not sticky."""
    request_key: str | None = None
    """Idempotency key of the caller, which repeats the answer; ``None`` without a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(LoggedDecision):
    """Decision with the first reward that closed it."""

    system: str
    agent_type: str
    params: Mapping[str, Any]
    reward: float | None
    reward_status: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """Reward of a decision as the caller sent it."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)
    user_id: Name | None = None
    """User whom the decision served; ``None`` for the user in the decision."""
    decision_id: Name | None
    """``None`` if a default arm served."""
    reward: Score | None = None
    """In [0, 1]; true is 1, here and in signals and scores."""
    signals: Annotated[Mapping[str, Outcome], AfterValidator(storable)] | None = None
    """Measured numbers by name: the system's `reward_metrics`, in [0, 1], and `guardrails`."""
    engagement_score: Score | None = None
    grading_score: Score | None = None
    metadata: Annotated[Mapping[str, Any], AfterValidator(storable)] | None = None
    """Further data, stored with the reward."""
    cost: Amount | None = None
    """Cost of the request, in the system's unit."""

    def __post_init__(self) -> None:
        """Validate the numbers.

        Raises:
            ValueError: the cost is negative or not finite, or a signal not finite.
        """
        if self.cost is not None and not 0.0 <= self.cost < math.inf:
            raise ValueError(f"a cost must be a number of 0 or more, but got {self.cost}")
        for name, number in (self.signals or {}).items():
            if not math.isfinite(number):
                raise ValueError(f"signals.{name} must be a finite number, but got {number}")

    @property
    def details_json(self) -> str | None:
        """Redacted JSON of all other fields; ``None`` if there are none."""
        details: dict[str, Any] = {
            "signals": None if self.signals is None else dict(self.signals),
            **fields_of(self, "engagement_score", "grading_score", "cost"),
            "metadata": None if self.metadata is None else dict(self.metadata),
        }
        members = {name: value for name, value in details.items() if value is not None}
        return stored_json(members) if members else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardTally:
    """Count of equal outcomes of fresh decisions, by policy version and arm."""

    version: int
    arm_id: str
    reward: float | None
    """Reward; ``None`` if it can still arrive."""
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLook:
    """One check of a gate."""

    system: str
    kind: LookKind
    candidate_id: str | None
    champion_id: str | None
    run_id: str | None
    decision: str
    n: int
    """Number of pairs or rewards."""
    log_e: float
    """Evidence for the decision that the gate tests, nats."""
    log_threshold: float
    details: Mapping[str, Any]
    created_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """Candidate in production."""

    system: str
    candidate_id: str
    params: Mapping[str, Any]
    run_id: str | None
    reason: str
    created_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAlarm:
    """Alarm of drift, or of shares that depart from the logged propensities."""

    seq: int
    system: str
    agent_type: str
    arm_id: str | None
    """``None`` for all arms together."""
    before: float
    """Approximate mean reward before the change, or expected share of decisions or rewards."""
    after: float
    """Mean reward since the change, or realised share."""
    n: int
    """Number of rewards or decisions between the start of monitoring and the alarm."""
    created_us: int
    kind: AlarmKind = "drift"

    @property
    def sentence(self) -> str:
        """Sentence on the alarm."""
        arm = "all arms" if self.arm_id is None else f"arm {self.arm_id}"
        where = f"of {self.system}/{self.agent_type}"
        if self.kind == "drift":
            return (
                f"Drift: {arm} {where} went from {self.before:.3g} to {self.after:.3g} after "
                f"{self.n:,} rewards."
            )
        what = "decisions" if self.kind == "sample_ratio" else "rewards"
        return (
            f"Sample ratio: {arm} {where} has {100 * self.after:.1f} % of {self.n:,} {what}, where its "
            f"propensities expect {100 * self.before:.1f} %."
        )


def shares_text(steps: Sequence[float], holdback: float) -> list[str]:
    """Return the shares of a ramp in words."""
    return [*(f"{100 * share:.4g} %" for share in steps), f"all but {100 * holdback:.4g} %"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGuard:
    """Monitoring of a promotion."""

    seq: int
    system: str
    agent_type: str
    promoted: str
    champion: str
    """Arm of the previous champion."""
    since: int
    """Policy version at the promotion; later versions are evidence."""
    alpha: float
    tolerance: float
    holdback: float
    """Share of requests that the champion keeps at the last step."""
    decision: str
    """``watching``, ``rollback``, ``confirmed`` or ``ended``."""
    steps: tuple[float, ...] = ()
    """Remaining shares of the promoted arm before the last step, the current one first."""
    guardrails: tuple[Guardrail, ...] = ()
    """Metrics monitored in addition to the reward."""

    @property
    def shares(self) -> tuple[float, ...]:
        """Remaining shares of the promoted arm, the current one first."""
        return (*self.steps, 1.0 - self.holdback)

    def sentence(self, names: Mapping[str, str]) -> str:
        """Return a sentence on the guard's state, with these names of arms."""
        promoted, champion = (names.get(arm, arm) for arm in (self.promoted, self.champion))
        if self.decision != "watching":
            return f"{promoted} against {champion}: {self.decision}."
        if not self.steps:
            kept = f"{champion} keeps {100 * self.holdback:.4g} % of the requests as control"
            return f"{kept}; {promoted} and any other arms share the rest."
        present, *left = shares_text(self.steps, self.holdback)
        shares = f"{promoted} gets {present} of the requests, {champion} the rest as control"
        return f"{shares}. Next: {', '.join(left)}."
