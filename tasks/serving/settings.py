"""Settings of a system at run time: its arms and how it serves them.

The store keeps them, so that every process uses the latest.
"""

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from convergence_core.gate.guardrails import REWARD
from tasks.store.runtime.rows import ArmKind

EXPLORE_AFTER_ALARM = 0.2
"""Share of requests spread evenly over the arms for some rewards after a drift alarm."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RuntimeArm(_Part):
    """An arm that a system offers."""

    params: dict[str, Any]
    """Parameters for the application."""
    arm_id: str | None = Field(default=None, min_length=1, max_length=200)
    """Name of the arm. Absent: a hash of its parameters."""
    prior_mean: float | None = Field(default=None, ge=0, le=1)
    """Mean reward measured by a nightly run. Absent: no prior."""
    prior_sd: float | None = Field(default=None, gt=0)
    """Its standard deviation; required with ``prior_mean``."""
    cost: float | None = Field(default=None, ge=0)
    """Cost of a request, used until rewards report costs, in any one unit. Absent: unknown."""

    @model_validator(mode="after")
    def _whole_prior(self) -> "RuntimeArm":
        if (self.prior_mean is None) != (self.prior_sd is None):
            raise ValueError("prior_mean and prior_sd belong together; give both or neither")
        return self


class RewardMetric(_Part):
    """Signal with its weight in the reward."""

    name: str
    """Key in ``signals``."""
    weight: float = Field(gt=0, le=1)
    """Weight relative to the other signals of the same reward."""


class RuntimeConfig(_Part):
    """Settings of one system at run time."""

    system: str = Field(min_length=1, max_length=200)
    """Name of the optimized system."""
    agent_type: str = "default"
    """Default kind of agent of a call."""
    default_arms: tuple[RuntimeArm, ...] = ()
    """Arms to activate; existing ones keep what they have learned. Without arms in the store, the
    first one serves.
    """
    reward_metrics: tuple[RewardMetric, ...] = ()
    """Signals that form the reward."""
    kind: ArmKind = "beta"
    """Posterior of an arm: mean reward, or reward given the request's context and user."""
    mode: Literal["regret", "verdict"] = "regret"
    """``regret`` maximizes reward; ``verdict`` decides soonest which arm is best."""
    sticky: Literal["none", "user", "session"] = "none"
    """Unit that keeps its arm; a session is ``context["session_id"]``."""
    floor: float | None = Field(default=None, ge=0, le=1)
    """Share of requests spread evenly over all arms. Absent: 2 %, or .2 % for linear arms, which
    sample for each request.
    """
    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Maximum probability of naming a false winner, however often you check."""
    min_effect: float = Field(default=0.0, ge=0, lt=0.99)
    """Minimum difference in mean reward for a winner."""
    expires_after_s: float | None = Field(default=86_400.0, gt=0)
    """Attribution window in seconds; later rewards teach nothing. Until its end a decision without
    a reward counts at its worst in the evidence. ``None`` means unlimited.
    """
    missing_reward: float | None = Field(default=None, ge=0, le=1)
    """Reward of a decision without one in its window, e.g. 0 if only clicks are sent. ``None``
    means that a missing reward says nothing about the arm.
    """
    rewards_per_false_alarm: float | None = Field(default=None, ge=20)
    """Minimum expected rewards between false drift alarms. ``None`` disables the alarms."""
    guardrails: dict[str, float] = {}
    """Metrics that a promotion must not worsen: ``cost`` or a key of ``signals`` → tolerated
    increase of its mean, or decrease if negative.
    """
    seed: int | None = Field(default=None, ge=0)
    """Makes choices reproducible, given the same rewards. ``None`` means system entropy."""

    @property
    def even_share(self) -> float:
        """``floor``, or its default for the kind of arms."""
        if self.floor is not None:
            return self.floor
        return 0.002 if self.kind == "linear" else 0.02

    @field_validator("guardrails")
    @classmethod
    def _has_margins(cls, guardrails: dict[str, float]) -> dict[str, float]:
        for name, margin in guardrails.items():
            if not margin or name == REWARD:
                raise ValueError(
                    f"guardrails must be names but `{REWARD}`, with a margin other than 0, but got "
                    f"{name}: {margin}. The reward's margin is `convergence promote --tolerance`."
                )
        return guardrails

    @model_validator(mode="after")
    def _states_what_is_missing(self) -> "RuntimeConfig":
        if self.missing_reward is None:
            return self
        if self.expires_after_s is None or self.rewards_per_false_alarm is not None:
            raise ValueError(
                "missing_reward needs expires_after_s, and no rewards_per_false_alarm: missing "
                "rewards arrive later than others"
            )
        return self

    @model_validator(mode="after")
    def _fits_kind(self) -> "RuntimeConfig":
        if self.kind == "beta":
            return self
        if self.mode != "regret" or self.rewards_per_false_alarm is not None:
            raise ValueError(
                f"mode verdict and rewards_per_false_alarm need kind beta, but got {self.kind}"
            )
        return self


def read_settings(system: str, text: str | None) -> RuntimeConfig:
    """Return a system's settings from stored JSON; the defaults if it was never configured.

    Settings that this version does not know are ignored.
    """
    values = {} if text is None else json.loads(text)
    known = {name: values[name] for name in RuntimeConfig.model_fields if name in values}
    return RuntimeConfig.model_validate({**known, "system": system})
