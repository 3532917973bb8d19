"""Settings of a system at run time: what it offers and how it serves.

The store keeps them, so that every process that serves or folds goes by the latest.
"""

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from convergence_core.gate.guardrails import REWARD
from tasks.store.runtime.rows import ArmKind

EXPLORE_AFTER_ALARM = 0.2
"""Share of the requests that is spread evenly for some rewards after an alarm of drift."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RuntimeArm(_Part):
    """An arm that a system offers."""

    params: dict[str, Any]
    """Parameters for the application."""
    arm_id: str | None = Field(default=None, min_length=1, max_length=200)
    """Name of the arm. Absent: a hash of its parameters."""
    prior_mean: float | None = Field(default=None, ge=0, le=1)
    """Mean reward that a night has measured. Absent: no opinion."""
    prior_sd: float | None = Field(default=None, gt=0)
    """Its standard deviation; stands beside ``prior_mean``."""
    cost: float | None = Field(default=None, ge=0)
    """What a request of it costs, until rewards come with costs; in any one unit. Absent: unknown."""

    @model_validator(mode="after")
    def _whole_prior(self) -> "RuntimeArm":
        if (self.prior_mean is None) != (self.prior_sd is None):
            raise ValueError("prior_mean and prior_sd belong together; give both or neither")
        return self


class RewardMetric(_Part):
    """One signal and its share in the reward."""

    name: str
    """Key in ``signals``."""
    weight: float = Field(gt=0, le=1)
    """Its weight among the signals that are given."""


class RuntimeConfig(_Part):
    """Settings of one system at run time."""

    system: str = Field(min_length=1, max_length=200)
    """Name of the optimized system."""
    agent_type: str = "default"
    """Kind of agent, where a call names none."""
    default_arms: tuple[RuntimeArm, ...] = ()
    """Arms to offer; those that are there keep what they have learned. Without arms in the store,
    these are what there is."""
    reward_metrics: tuple[RewardMetric, ...] = ()
    """How ``signals`` become a reward."""
    kind: ArmKind = "beta"
    """Posterior of an arm: of a mean reward, or of one that depends on the request's context and user."""
    mode: Literal["regret", "verdict"] = "regret"
    """Traffic that earns most, or that decides soonest which arm is best."""
    sticky: Literal["none", "user", "session"] = "none"
    """Unit that keeps its arm; a session is ``context["session_id"]``."""
    floor: float | None = Field(default=None, ge=0, le=1)
    """Share of the requests that is spread evenly over all arms. Absent: 2 %; of linear arms .2 %, for they draw anew
    for each request."""
    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Largest probability of naming a winner that is none, at any look."""
    min_effect: float = Field(default=0.0, ge=0, lt=0.99)
    """Least difference in mean reward that makes a winner."""
    expires_after_s: float | None = Field(default=86_400.0, gt=0)
    """Attribution window, seconds: a reward after it is late and teaches nothing. Until then a decision
    without a reward counts at its worst in the evidence. ``None`` means for ever."""
    missing_reward: float | None = Field(default=None, ge=0, le=1)
    """Reward of a decision that got none in its window, as 0 where only clicks are sent. ``None``: it
    says nothing about its arm."""
    rewards_per_false_alarm: float | None = Field(default=None, ge=20)
    """Watch for drift, with so many rewards between false alarms at least. ``None``: do not."""
    guardrails: dict[str, float] = {}
    """Numbers that a promotion may not make worse: ``cost`` or a key of ``signals`` → by how much its mean
    may rise, or fall if below 0."""
    seed: int | None = Field(default=None, ge=0)
    """Same seed and same rewards, same choices. ``None`` means from the machine's entropy."""

    @property
    def even_share(self) -> float:
        """``floor``, or what stands for it."""
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
    """Return how a system serves by its stored JSON; ``None`` if it was never configured.

    Settings that only another version knows are left out.
    """
    values = {} if text is None else json.loads(text)
    known = {name: values[name] for name in RuntimeConfig.model_fields if name in values}
    return RuntimeConfig.model_validate({**known, "system": system})
