"""Stable-Baselines3 on the same environments: its PPO, and sb3-contrib's MaskablePPO.

They need an environment of their own beside this project's::

    pip install torch stable-baselines3==2.9.2 sb3-contrib==2.9.2

Both play the copies that ours plays, through one adapter, so that no difference is the environment's. Torch has one thread.
"""

import copy
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO  # type: ignore[import-not-found]  # of its own environment
from stable_baselines3 import PPO  # type: ignore[import-not-found]  # as above
from stable_baselines3.common.callbacks import (  # type: ignore[import-not-found]  # as above
    BaseCallback,
)
from stable_baselines3.common.vec_env.base_vec_env import (  # type: ignore[import-not-found]  # as above
    VecEnv,
)

from benchmarks.policy.cartpole import (
    COPIES,
    SOLVED,
    CartPole,
    Solution,
    greedy_lengths,
)
from convergence_core.policy import Offer, PPOConfig, VectorEnvironment
from convergence_core.policy.distribution import Ints
from convergence_core.policy.network import Floats

if TYPE_CHECKING:
    from benchmarks.policy.variants import Decide, SimulatedCopies

torch.set_num_threads(1)


class OfferedVecEnv(VecEnv):  # type: ignore[misc]  # of a library without types
    """Copies of one of our environments, as Stable-Baselines3 plays them."""

    def __init__(
        self, environment: VectorEnvironment, seed: int, *, bound: float = np.inf
    ) -> None:
        self._environment, self._rng = environment, np.random.default_rng([1, seed])
        self._offer: Offer = environment.reset(self._rng)
        n, size = self._offer.observations.shape
        self._actions = np.zeros(n, dtype=np.int64)
        super().__init__(
            n,
            spaces.Box(-bound, bound, (size,), np.float32),
            spaces.Discrete(self._offer.legal.shape[1]),
        )

    def reset(self) -> Floats:
        """Return the observations; the copies have begun already."""
        return self._offer.observations

    def step_async(self, actions: Ints) -> None:
        """Keep the actions."""
        self._actions = actions

    def step_wait(self) -> tuple[Floats, Floats, np.ndarray, list[dict[str, Any]]]:
        """Do them."""
        step = self._environment.step(self._actions)
        self._offer = step.offer
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(step.terminated | step.truncated):
            infos[row]["terminal_observation"] = step.final_observations[row]
            infos[row]["TimeLimit.truncated"] = bool(step.truncated[row])
        ended = step.terminated | step.truncated
        return step.offer.observations, step.rewards.astype(np.float32), ended, infos

    def env_method(self, method_name: str, *_: Any, **__: Any) -> list[Any]:
        """Return the masks, which is all that is asked for."""
        if method_name != "action_masks":
            raise AttributeError(method_name)
        return [*self._offer.legal]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:  # noqa: ARG002 - of the interface
        """Say that there are masks, and that nothing is drawn."""
        if attr_name not in {"action_masks", "render_mode"}:
            raise AttributeError(attr_name)
        return [None] * self._offer.legal.shape[0]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:  # noqa: ARG002 - of the interface
        """Refuse: nothing is set from outside."""
        raise AttributeError(attr_name)

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:  # noqa: ARG002 - of the interface
        """Return that none is."""
        return [False] * self.num_envs

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def maskable(
    environment: VectorEnvironment, config: PPOConfig, seed: int, *, n_copies: int
) -> Any:
    """Return a MaskablePPO with the networks and settings of ours."""
    return MaskablePPO(
        "MlpPolicy",
        OfferedVecEnv(environment, seed),
        n_steps=config.buffer_size // n_copies,
        batch_size=config.batch_size,
        n_epochs=config.n_epochs,
        learning_rate=_falling(config),
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        clip_range=config.eps_clip,
        clip_range_vf=config.value_clip,
        ent_coef=config.entropy_coef,
        vf_coef=config.value_coef,
        max_grad_norm=config.max_grad_norm,
        policy_kwargs={"net_arch": [*config.hidden_sizes], "activation_fn": torch.nn.Tanh},
        seed=seed,
        device="cpu",
    )


def _falling(config: PPOConfig) -> Callable[[float], float] | float:
    if config.total_steps is None:
        return config.learning_rate
    return lambda left: config.learning_rate * left


class _Handed(BaseCallback):  # type: ignore[misc]  # of a library without types
    """Keeps the policy after the last update that each budget paid for."""

    def __init__(self, copies: "SimulatedCopies", budgets: Sequence[int]) -> None:
        super().__init__()
        self.kept: list[tuple[int, dict[str, Any]]] = []
        self._copies, self._left = copies, [*budgets]
        self._previous: dict[str, Any] = {}

    def _on_rollout_start(self) -> None:
        self._previous = copy.deepcopy(self.model.policy.state_dict())

    def _on_step(self) -> bool:
        while self._left and self._copies.n_evaluations > self._left[0]:
            self.kept.append((self._left.pop(0), self._previous))
        return bool(self._left)


def learned_by_maskable(
    copies: "SimulatedCopies", config: PPOConfig, seed: int, budgets: tuple[int, ...]
) -> Iterator[tuple[int, "Decide"]]:
    """Yield each budget and the policy after the last update that it paid for."""
    made = maskable(copies, config, seed, n_copies=copies.n)
    handed = _Handed(copies, budgets)
    made.learn(budgets[-1], callback=handed)

    def decide(offer: Offer, _: Ints) -> Ints:
        found, _state = made.predict(
            offer.observations, deterministic=True, action_masks=offer.legal
        )
        actions: Ints = np.asarray(found, dtype=np.int64)
        return actions

    for budget, weights in handed.kept:
        made.policy.load_state_dict(weights)
        yield budget, decide


ZOO = {
    "n_steps": 32, "batch_size": 256, "n_epochs": 20, "gae_lambda": 0.8, "gamma": 0.98,
    "ent_coef": 0.0, "learning_rate": lambda left: 1e-3 * left, "clip_range": lambda left: 0.2 * left,
}  # fmt: skip
"""Settings of CartPole-v1 in rl-baselines3-zoo, for 8 copies and 100,000 steps."""
ZOO_STEPS = 100_000


class _Lengths(BaseCallback):  # type: ignore[misc]  # of a library without types
    """Ends the training when the last 100 episodes were 475 steps long."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: deque[int] = deque(maxlen=100)
        self.solved_at: int | None = None
        self.solved_cpu_s: float | None = None
        self._running = np.zeros(COPIES, dtype=np.int64)
        self._began = time.process_time()

    def _on_step(self) -> bool:
        self._running += 1
        ended = self.locals["dones"]
        self.lengths.extend(self._running[ended].tolist())
        self._running[ended] = 0
        full = len(self.lengths) == 100 and np.mean(self.lengths) >= SOLVED
        if self.solved_at is None and full:
            self.solved_at = self.num_timesteps
            self.solved_cpu_s = time.process_time() - self._began
        return self.solved_at is None


def solve_cartpole(seed: int) -> Solution:
    """Train Stable-Baselines3's PPO on CartPole-v1 until it is solved, with the settings of its zoo."""
    began = time.process_time()
    made = PPO("MlpPolicy", OfferedVecEnv(CartPole(COPIES), seed), seed=seed, device="cpu", **ZOO)
    seen = _Lengths()
    made.learn(ZOO_STEPS, callback=seen)
    cpu_s = time.process_time() - began

    def decide(offer: Offer) -> Ints:
        return np.asarray(made.predict(offer.observations, deterministic=True)[0], dtype=np.int64)

    tested = greedy_lengths(decide, seed)
    return Solution(
        seed=seed,
        solved_at=seen.solved_at,
        solved_cpu_s=seen.solved_cpu_s,
        last=float(np.mean(seen.lengths)),
        greedy=float(tested.mean()),
        shortest=int(tested.min()),
        cpu_s=cpu_s,
    )
