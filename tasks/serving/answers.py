"""Answers at run time, identical over HTTP and in Python."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from convergence_core.records import fields_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Status = Literal["ok", "late", "duplicate", "conflict", "unknown", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The arm that serves a request."""

    decision_id: str | None
    """Id of the decision for its reward; ``None`` if a default serves and nothing is learned."""
    arm_id: str
    params: Mapping[str, Any]
    sampled_value: float | None = None
    """Sample from the posterior of the arm's mean reward."""
    propensity: float | None = None
    """Probability of choosing the arm."""
    policy_version: int | None = None
    """Version of the policy; 0 for contextual arms, whose policy depends on the request."""
    fresh: bool = False
    """Whether this request sampled the arm; false for a sticky or a default arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSelection(Selection):
    """The arm that serves a request, and the candidates of the choice."""

    arms_state: tuple[dict[str, Any], ...] = ()
    """All active arms: ``arm_id``, ``alpha``, ``beta``, ``mean``, ``n``, ``prior``, ``cost``."""

    @property
    def metadata(self) -> dict[str, Any]:
        """``propensity``, ``policy_version``, ``fresh``; or ``fallback``."""
        if self.decision_id is None:
            return {"fallback": True}
        return fields_of(self, "propensity", "policy_version", "fresh")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardOutcome:
    """The effect of a reward."""

    success: bool
    status: Status
    reward: float | None
    """Reward as interpreted; ``None`` if none was sent."""
    engagement_score: float | None = None
    grading_score: float | None = None
    computed_update: Mapping[str, float] | None = None
    """Increments of the arm's ``alpha`` and ``beta``; ``None`` if nothing was learned."""
    alarm: str | None = None
    """Alarm of drift that the reward raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedAnswer:
    """A role's answer to a prompt, as it is logged."""

    interaction_id: str
    """Id for rating the answer."""
    role: str
    response: str
    model: str
    """Provider's name of the model."""
    adapter_version: str | None
    """Adapter that answered; ``None`` without one. Hide it from raters before they rate."""
    finish_reason: str
    """``stop``, or ``length`` if the answer was cut."""
    n_input_tokens: int | None
    """``None`` if not reported."""
    n_output_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """An arm and its posterior."""

    arm_id: str
    agent_type: str
    params: Mapping[str, Any]
    alpha: float
    beta: float
    mean: float
    n: int
    """Number of rewards behind the posterior."""
    prior: Mapping[str, Any] | None
    cost: float | None
    """Mean cost of a request; ``None`` if unknown."""
    run_id: str | None
    retired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """Evidence of the traffic by agent type, every look of a gate, and the champion."""

    evidence: Mapping[str, Mapping[str, Any]]
    looks: tuple[Mapping[str, Any], ...]
    guards: tuple[Mapping[str, Any], ...]
    alarms: tuple[Mapping[str, Any], ...]
    champion: Mapping[str, Any] | None


def as_dict(
    answer: "DataclassInstance", kind: "type[DataclassInstance] | None" = None
) -> dict[str, Any]:
    """Return an answer's fields by name; with ``kind``, only the fields of that class."""
    return {field.name: getattr(answer, field.name) for field in fields(kind or answer)}
