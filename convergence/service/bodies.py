"""What is sent to the service and what it answers, as pydantic models: the OpenAPI schema."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictFloat,
)

from convergence_core.records import canonical_json

_NAME = r"^[^\x00-\x1f\x7f]+$"
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=_NAME)]
"""An identifier; no control characters."""
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
"""A number in [0, 1]."""
Cost = Annotated[float, Field(ge=0, strict=True)]
Feature = StrictBool | StrictFloat | Annotated[str, Field(max_length=2_000)] | None


def _storable(value: dict[str, Any]) -> dict[str, Any]:
    try:
        canonical_json(value).encode()
    except (TypeError, ValueError) as error:
        raise ValueError("must be JSON of finite numbers and Unicode text") from error
    return value


Features = Annotated[dict[str, Feature], AfterValidator(_storable)]
Values = Annotated[dict[str, JsonValue], AfterValidator(_storable)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


class SelectBody(_Body):
    """A request that needs an arm."""

    user_id: Name
    """Whom it serves."""
    agent_type: Name | None = None
    """Kind of agent. Absent: the system's default."""
    context: Features | None = None
    """Features of the request; `session_id` keeps a session's arm where the system says so."""


class SelectAnswer(BaseModel):
    """The arm that serves the request."""

    decision_id: str | None
    """Give it to `update`; null: a default serves, and nothing can be learned."""
    arm_id: str
    params: dict[str, JsonValue]
    sampled_value: float | None
    propensity: float | None
    policy_version: int | None
    fresh: bool
    """Drawn for this request; false: kept by its user or session, or a default."""


class UpdateBody(_Body):
    """What came of a decision."""

    user_id: Name
    decision_id: Name
    reward: Annotated[float, Field(strict=True)] | None = None
    """In [0, 1]; of Gaussian arms any finite number."""
    signals: Annotated[dict[str, Share], AfterValidator(_storable)] | None = None
    """Measured parts of the reward, by the names of the system's `reward_metrics`."""
    engagement_score: Share | None = None
    grading_score: Share | None = None
    metadata: Values | None = None
    """Stored beside the reward."""
    cost: Cost | None = None
    """What the request cost, in the system's own unit."""


class ArmUpdate(BaseModel):
    """How an arm's counts grew."""

    alpha: float
    beta: float


class UpdateAnswer(BaseModel):
    """What became of it."""

    success: bool
    status: Literal["ok", "late", "duplicate", "conflict", "unknown", "none"]
    reward: float | None
    engagement_score: float | None
    grading_score: float | None
    computed_update: ArmUpdate | None
    alarm: str | None = None
    """The alarm of drift that it raised."""


class PriorBody(_Body):
    """What a night has measured of an arm."""

    mean: Share
    sd: Annotated[float, Field(gt=0, strict=True)]


class ArmBody(_Body):
    """An arm to put on offer."""

    params: Values
    agent_type: Name | None = None
    prior: PriorBody | None = None
    cost: Cost | None = None
    """What a request of it costs, until updates tell it."""


class ArmAnswer(BaseModel):
    """An arm and what is believed of it."""

    arm_id: str
    agent_type: str
    params: dict[str, JsonValue]
    alpha: float
    beta: float
    mean: float
    n: int
    """Rewards it learned from."""
    prior: dict[str, JsonValue] | None
    cost: float | None
    """Mean cost of a request; null: unknown."""
    run_id: str | None
    retired: bool


class ArmsAnswer(BaseModel):
    """All arms of a system."""

    arms: list[ArmAnswer]


class RetiredAnswer(BaseModel):
    """Whether an arm was taken off offer."""

    arm_id: str
    retired: bool
    """False: it was off already."""


class DecisionAnswer(BaseModel):
    """A decision and its reward."""

    decision_id: str
    agent_type: str
    arm_id: str
    params: dict[str, JsonValue]
    version: int
    propensity: float
    is_fresh: bool
    created_us: int
    expires_us: int | None
    reward: float | None
    reward_status: str | None


class EvidenceAnswer(BaseModel):
    """What traffic cost so far, and what it shows so far."""

    arms: list[str]
    means: list[float]
    numbers: list[int]
    log_e: list[float]
    out: list[bool]
    log_threshold: float
    winner: str | None
    regret: float
    n_to_verdict: int | None
    caveat: str
    """What a winner takes for granted."""


class QualityAnswer(BaseModel):
    """What is known of an arm's quality and cost, where a system serves by quality."""

    arm_id: str
    standing: Literal["holds", "fails", "undecided"]
    low: float
    high: float
    cost: float | None
    serves: bool
    """Whether most requests go to it."""


class LookAnswer(BaseModel):
    """One look of a gate."""

    kind: str
    candidate_id: str | None
    champion_id: str | None
    run_id: str | None
    decision: str
    n: int
    log_e: float
    log_threshold: float
    details: dict[str, JsonValue]
    created_us: int


class AlarmAnswer(BaseModel):
    """An alarm: the mean reward of an arm, or of all, has changed."""

    agent_type: str
    arm_id: str | None
    """``null``: of all arms together."""
    before: float
    after: float
    n: int
    created_us: int


class GuardAnswer(BaseModel):
    """The watch over a promotion."""

    agent_type: str
    promoted: str
    champion: str
    alpha: float
    tolerance: float
    holdback: float
    decision: Literal["watching", "rollback", "confirmed", "ended"]


class ChampionAnswer(BaseModel):
    """Who is in production."""

    candidate_id: str
    params: dict[str, JsonValue]
    run_id: str | None
    reason: str
    created_us: int


class GatesAnswer(BaseModel):
    """Evidence of the traffic, every look of a gate, and the champion."""

    evidence: dict[str, EvidenceAnswer]
    """Agent type → its traffic; those with two arms or more."""
    quality: dict[str, list[QualityAnswer]]
    """Agent type → its arms on offer, where the system serves by quality."""
    guards: list[GuardAnswer]
    alarms: list[AlarmAnswer]
    looks: list[LookAnswer]
    champion: ChampionAnswer | None


class HealthAnswer(BaseModel):
    """That the service lives."""

    status: Literal["ok"]
    version: str
    waiting: int
    """Requests in line for their commit."""


class ProblemAnswer(BaseModel):
    """Why a request was not served."""

    title: str
    status: int
    detail: str
    errors: list[str] | None = None
    """Of a body: each place and rule."""
