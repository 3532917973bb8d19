"""Settings of proximal policy optimization."""

import math
from dataclasses import dataclass, fields

AT_LEAST_ONE = ("input_dim", "action_dim", "n_epochs", "batch_size", "buffer_size")
SHARES = ("gamma", "gae_lambda")
NOT_NEGATIVE = ("entropy_coef", "value_coef")
OPTIONAL = ("total_steps", "value_clip", "target_kl")


@dataclass(frozen=True, slots=True, kw_only=True)
class PPOConfig:
    """Settings of one policy and of its updates.

    Raises:
        ValueError: a setting is out of range.
    """

    input_dim: int = 1536
    """Numbers in one observation, 1 or more."""
    action_dim: int = 5
    """Actions, 1 or more."""
    hidden_dim: int = 256
    """Width of the first two hidden layers, 2 or more; the third has half of it."""
    learning_rate: float = 3e-4
    """Step of Adam at the first update, above 0."""
    total_steps: int | None = None
    """Environment steps over which the learning rate falls linearly to 0. ``None`` if no end is
    known, and after ten rollouts it falls with the square root of the steps."""
    gamma: float = 0.99
    """Discount of a reward one step later, in [0, 1]."""
    gae_lambda: float = 0.95
    """Weight of longer returns in the advantage, in [0, 1]."""
    eps_clip: float = 0.2
    """Change of an action's likelihood ratio beyond which it earns nothing more, above 0."""
    value_clip: float | None = 0.2
    """Farthest that a value moves in one update, in units of the return; ``None`` means no limit.
    """
    entropy_coef: float = 0.01
    """Weight of the entropy over legal actions."""
    value_coef: float = 0.5
    """Weight of the squared error of values."""
    max_grad_norm: float = 0.5
    """Longest gradient, over all weights of both networks; longer ones are scaled down."""
    target_kl: float | None = None
    """An update ends where a minibatch's KL divergence, in nats, passes 1.5 of this; ``None``
    means never."""
    n_epochs: int = 4
    """Passes over a rollout."""
    batch_size: int = 64
    """Transitions in one minibatch."""
    buffer_size: int = 2048
    """Transitions in one rollout."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None or field.name not in OPTIONAL:
                rule = "a number" if value is None else _broken_rule(field.name, value)
                if rule:
                    raise ValueError(f"`{field.name}` must be {rule}, but got {value!r}")

    @property
    def hidden_sizes(self) -> tuple[int, int, int]:
        """Widths of the hidden layers, of the policy and of the value network alike."""
        return self.hidden_dim, self.hidden_dim, self.hidden_dim // 2

    def rate(self, n_steps: int) -> float:
        """Return Adam's step for an update that begins after ``n_steps`` environment steps."""
        if self.total_steps is None:
            return self.learning_rate * min(
                1.0, math.sqrt(10 * self.buffer_size / max(1, n_steps))
            )
        return self.learning_rate * max(0.0, 1.0 - n_steps / self.total_steps)


def _broken_rule(name: str, value: float) -> str:
    """Return the rule that a value breaks, or nothing."""
    if name in AT_LEAST_ONE or name in {"hidden_dim", "total_steps"}:
        least = 2 if name == "hidden_dim" else 1
        good = isinstance(value, int) and not isinstance(value, bool) and value >= least
        return "" if good else f"a whole number, {least} or more"
    if not math.isfinite(value):
        return "finite"
    if name in SHARES:
        return "" if 0.0 <= value <= 1.0 else "in [0, 1]"
    if name in NOT_NEGATIVE:
        return "" if value >= 0.0 else "0 or more"
    return "" if value > 0.0 else "above 0"
