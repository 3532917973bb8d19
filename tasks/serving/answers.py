"""Answers at run time, the same over HTTP and in Python."""

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
    """Name of the decision for its reward; ``None``: a default serves, and nothing can be learned."""
    arm_id: str
    params: Mapping[str, Any]
    sampled_value: float | None = None
    """A draw of the arm's mean reward."""
    propensity: float | None = None
    """Probability with which the arm was drawn."""
    policy_version: int | None = None
    """0: contextual arms have a policy for each request."""
    fresh: bool = False
    """Drawn for this request; false: kept by its user or session, or a default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSelection(Selection):
    """The arm that serves a request, and the arms it was chosen from."""

    arms_state: tuple[dict[str, Any], ...] = ()
    """Every arm on offer: ``arm_id``, ``alpha``, ``beta``, ``mean``, ``n``, ``prior``, ``cost``."""

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
    """The reward that was meant; ``None``: none was given."""
    engagement_score: float | None = None
    grading_score: float | None = None
    computed_update: Mapping[str, float] | None = None
    """Added to the arm's ``alpha`` and ``beta``; ``None``: nothing is learned."""
    alarm: str | None = None
    """The alarm of drift that it raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedAnswer:
    """A role's answer to a prompt, as it is logged."""

    interaction_id: str
    """Rate it under this."""
    role: str
    response: str
    model: str
    """That was asked, by the name that its provider has for it."""
    adapter_version: str | None
    """The adapter that answered; ``None``: none did. Whoever rates should not see it before."""
    finish_reason: str
    """``stop``, or ``length``: it was cut at its longest."""
    n_input_tokens: int | None
    """``None``: the provider told none."""
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
    """Rewards it learned from."""
    prior: Mapping[str, Any] | None
    cost: float | None
    """Mean cost of a request; ``None``: unknown."""
    run_id: str | None
    retired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """Evidence of the traffic by agent type, every look of a gate, and the champion."""

    evidence: Mapping[str, Mapping[str, Any]]
    quality: Mapping[str, list[Mapping[str, Any]]]
    """By agent type, where the system serves by quality."""
    looks: tuple[Mapping[str, Any], ...]
    guards: tuple[Mapping[str, Any], ...]
    alarms: tuple[Mapping[str, Any], ...]
    champion: Mapping[str, Any] | None


def as_dict(
    answer: "DataclassInstance", kind: "type[DataclassInstance] | None" = None
) -> dict[str, Any]:
    """Return an answer's fields, or those that it has as a ``kind``, by their names."""
    return {field.name: getattr(answer, field.name) for field in fields(kind or answer)}
