"""What the service answers, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convergence_core.errors import ConvergenceError


class ServiceRefusedError(ConvergenceError):
    """The service refused a request, or could not be reached."""

    def __init__(self, status: int | None, detail: str) -> None:
        """Keep the HTTP status; ``None``: there was no answer."""
        self.status, self.detail = status, detail
        super().__init__(f"the service refused: {detail}" if status else f"no answer: {detail}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The arm that serves a request."""

    decision_id: str | None
    """``None``: a default serves, and nothing can be learned."""
    arm_id: str
    params: Mapping[str, Any]
    sampled_value: float | None
    propensity: float | None
    policy_version: int | None
    fresh: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """What became of a reward."""

    success: bool
    status: str
    """``ok``, ``late``, ``duplicate``, ``conflict``, ``unknown`` or ``none``."""
    reward: float | None
    computed_update: Mapping[str, float] | None
    alarm: str | None = None
    """The alarm of drift that it raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """An arm and what is believed of it."""

    arm_id: str
    agent_type: str
    params: Mapping[str, Any]
    alpha: float
    beta: float
    mean: float
    n: int
    prior: Mapping[str, Any] | None
    cost: float | None
    run_id: str | None
    retired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision and its reward."""

    decision_id: str
    agent_type: str
    arm_id: str
    params: Mapping[str, Any]
    version: int
    propensity: float
    is_fresh: bool
    created_us: int
    expires_us: int | None
    reward: float | None
    reward_status: str | None


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
