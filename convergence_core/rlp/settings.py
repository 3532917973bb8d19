"""The numbers of the learner that a configuration may set; the rest are constants beside their use."""

from dataclasses import dataclass

from convergence_core.rlp import advantage, policy


@dataclass(frozen=True, slots=True, kw_only=True)
class RlpSettings:
    """See ``society.rlp``."""

    n_thoughts: int = 4
    """G, thoughts drawn in each generation."""
    n_predicted: int = 8
    """Candidates whose outcome is predicted, at most."""
    gamma: float = advantage.GAMMA
    gae_lambda: float = advantage.LAMBDA
    normalize_rewards: bool = True
    clip_epsilon: float = policy.CLIP_EPSILON
    kl_target: float = policy.KL_TARGET
    ema_decay: float = 0.9
    """Memory of the baseline's weights."""
