"""Policy over discrete actions, learned by PPO (arXiv 1707.06347).

``PPOConfig`` holds the settings and ``PPOState`` everything learned. ``choose`` samples legal
actions, ``collect`` runs environments with a fixed policy, and ``improve`` learns from the
resulting ``Rollout``. An ``ExperienceBuffer`` builds a rollout from single steps. ``pack`` and
``unpack`` convert a state to the bytes of a checkpoint and back. ``PromptEpisode`` is the
observation of a policy of prompts.
"""
