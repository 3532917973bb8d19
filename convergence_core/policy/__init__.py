"""Policy over discrete actions, learned by PPO (arXiv 1707.06347).

``PPOConfig`` holds the settings and ``PPOState`` everything learned. ``choose`` samples legal
actions, ``collect`` runs environments with a fixed policy, and ``improve`` learns from the
resulting ``Rollout``. An ``ExperienceBuffer`` builds a rollout from single steps. ``pack`` and
``unpack`` convert a state to the bytes of a checkpoint and back. ``PromptEpisode`` is the
observation of a policy of prompts and ``PromptEnvironment`` its environment.
"""

from convergence_core.policy.advantage import following_values, generalized_advantages
from convergence_core.policy.checkpoint import PolicyIdentity, pack, unpack
from convergence_core.policy.distribution import MaskedCategorical
from convergence_core.policy.experience_buffer import (
    ExperienceBuffer,
    PolicyDecision,
    StepOutcome,
)
from convergence_core.policy.learner import PPOState, UpdateStatistics, improve, train
from convergence_core.policy.network import ActorCritic, TanhNetwork
from convergence_core.policy.prompt_environment import (
    PromptEnvironment,
    PromptEnvironments,
    PromptSituation,
    PromptWorld,
)
from convergence_core.policy.prompt_state import (
    MUTATION_ACTIONS,
    N_PROGRESS,
    PROMPT_ACTIONS,
    REFLECT,
    STOP,
    PromptEpisode,
)
from convergence_core.policy.rollout import (
    EnvironmentStep,
    Offer,
    Rollout,
    VectorEnvironment,
    choose,
    collect,
)
from convergence_core.policy.settings import PPOConfig

__all__ = [
    "MUTATION_ACTIONS",
    "N_PROGRESS",
    "PROMPT_ACTIONS",
    "REFLECT",
    "STOP",
    "ActorCritic",
    "EnvironmentStep",
    "ExperienceBuffer",
    "MaskedCategorical",
    "Offer",
    "PPOConfig",
    "PPOState",
    "PolicyDecision",
    "PolicyIdentity",
    "PromptEnvironment",
    "PromptEnvironments",
    "PromptEpisode",
    "PromptSituation",
    "PromptWorld",
    "Rollout",
    "StepOutcome",
    "TanhNetwork",
    "UpdateStatistics",
    "VectorEnvironment",
    "choose",
    "collect",
    "following_values",
    "generalized_advantages",
    "improve",
    "pack",
    "train",
    "unpack",
]
