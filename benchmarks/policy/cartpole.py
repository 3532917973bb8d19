"""CartPole-v1, many copies at once, and how soon the policy solves it.

The dynamics are those of Gymnasium's ``CartPole-v1`` (A. Barto, R. Sutton, C. Anderson, 1983; Euler's method,
steps of 0.02 s); a test holds trajectories against Gymnasium's, where it is installed.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from convergence_core.policy import (
    EnvironmentStep,
    Offer,
    PPOConfig,
    PPOState,
    choose,
    train,
)
from convergence_core.policy.distribution import Ints

GRAVITY, CART, POLE, HALF, FORCE, TAU = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
FARTHEST, STEEPEST, LIMIT = 2.4, 12 * 2 * np.pi / 360, 500
SOLVED = 475.0
"""Mean length of the last 100 episodes of training."""

CONFIG = PPOConfig(
    input_dim=4,
    action_dim=2,
    hidden_dim=64,
    learning_rate=1.5e-3,
    total_steps=80_000,
    value_clip=None,
    entropy_coef=0.0,
    n_epochs=10,
    buffer_size=1024,
)
"""The defaults of Stable-Baselines3 with a rate of 1.5e-3 that falls to 0, and rollouts of 8 x 128 steps."""
COPIES = 8


class CartPole:
    """Copies of CartPole-v1; every step pays 1."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.state = np.zeros((n, 4))
        self.t = np.zeros(n, dtype=np.int64)
        self._rng = np.random.default_rng(0)

    def offer(self) -> Offer:
        """Return where the copies are."""
        return Offer(
            observations=self.state.astype(np.float32), legal=np.ones((self.n, 2), dtype=bool)
        )

    def reset(self, rng: np.random.Generator) -> Offer:
        """Begin anew, near the upright."""
        self._rng = rng
        self.state = rng.uniform(-0.05, 0.05, size=(self.n, 4))
        self.t = np.zeros(self.n, dtype=np.int64)
        return self.offer()

    def step(self, actions: np.ndarray) -> EnvironmentStep:
        """Push each cart to the left (0) or to the right (1)."""
        self.state = moved(self.state, actions)
        self.t += 1
        fallen = (np.abs(self.state[:, 0]) > FARTHEST) | (np.abs(self.state[:, 2]) > STEEPEST)
        cut = ~fallen & (self.t >= LIMIT)
        final = self.state.astype(np.float32)
        ends = fallen | cut
        if ends.any():
            self.state[ends] = self._rng.uniform(-0.05, 0.05, size=(int(ends.sum()), 4))
            self.t[ends] = 0
        return EnvironmentStep(
            offer=self.offer(),
            rewards=np.ones(self.n),
            terminated=fallen,
            truncated=cut,
            final_observations=final,
        )


def moved(state: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Return the next position, speed, angle and angular speed of each copy, (n, 4)."""
    x, x_speed, angle, angle_speed = state.T
    force = np.where(actions == 1, FORCE, -FORCE)
    cos, sin = np.cos(angle), np.sin(angle)
    shared = (force + POLE * HALF * angle_speed**2 * sin) / (CART + POLE)
    angle_push = (GRAVITY * sin - cos * shared) / (
        HALF * (4.0 / 3.0 - POLE * cos**2 / (CART + POLE))
    )
    x_push = shared - POLE * HALF * angle_push * cos / (CART + POLE)
    return np.stack(
        (
            x + TAU * x_speed,
            x_speed + TAU * x_push,
            angle + TAU * angle_speed,
            angle_speed + TAU * angle_push,
        ),
        axis=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What one seed did."""

    seed: int
    solved_at: int | None
    """Environment steps at which the last 100 episodes were 475 steps long; ``None``: never."""
    last: float
    """Mean length of the last 100 episodes of training."""
    greedy: float
    """Mean length of 100 episodes of the likeliest actions."""
    shortest: int
    """Of those 100."""
    cpu_s: float
    """Of the whole training."""
    solved_cpu_s: float | None
    """Up to ``solved_at``."""


def solve(seed: int, n_steps: int = 80_000) -> Solution:
    """Train one seed."""
    rng = np.random.default_rng(seed)
    began = time.process_time()
    state, solved_at, solved_cpu_s = PPOState.begin(CONFIG, rng), None, None
    lengths: deque[int] = deque(maxlen=100)
    running = np.zeros(COPIES, dtype=np.int64)
    updates = n_steps // CONFIG.buffer_size
    for after, rollout, _ in train(state, CartPole(COPIES), CONFIG, n_updates=updates, rng=rng):
        state = after
        for ends in rollout.terminated | rollout.truncated:
            running += 1
            lengths.extend(running[ends].tolist())
            running[ends] = 0
        if solved_at is None and len(lengths) == 100 and np.mean(lengths) >= SOLVED:
            solved_at, solved_cpu_s = state.n_steps, time.process_time() - began
    cpu_s = time.process_time() - began
    tested = greedy_lengths(lambda offer: choose(state.networks, offer).actions, seed)
    return Solution(
        seed=seed,
        solved_at=solved_at,
        last=float(np.mean(lengths)),
        greedy=float(tested.mean()),
        shortest=int(tested.min()),
        cpu_s=cpu_s,
        solved_cpu_s=solved_cpu_s,
    )


def greedy_lengths(decide: Callable[[Offer], Ints], seed: int, n: int = 100) -> np.ndarray:
    """Return the length of one episode of each of n copies, with the actions that are decided on."""
    environment = CartPole(n)
    offer = environment.reset(np.random.default_rng(10_000 + seed))
    lengths = np.zeros(n, dtype=np.int64)
    while (lengths == 0).any():
        before = environment.t + 1
        step = environment.step(decide(offer))
        first = (step.terminated | step.truncated) & (lengths == 0)
        lengths[first] = before[first]
        offer = step.offer
    return lengths


def report(seeds: range, *, beside: bool) -> None:
    """Print a table of seeds.

    Args:
        seeds: one row each.
        beside: run Stable-Baselines3 too, seed by seed; its library must be there.
    """
    learners: dict[str, Callable[[int], Solution]] = {"ours": solve}
    if beside:
        from benchmarks.policy import stable_baselines  # noqa: PLC0415 - needs its library

        learners["Stable-Baselines3"] = stable_baselines.solve_cartpole
    found: dict[str, list[Solution]] = {name: [] for name in learners}
    print("| | seed | last 100 at 475 after steps | CPU s until then | CPU s in all | last 100 "
          "| greedy mean, shortest |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for seed in seeds:
        for name, learn in learners.items():
            one = learn(seed)
            found[name].append(one)
            print(f"| {name} | {seed} | {_row(one)} |", flush=True)
    for name, listed in found.items():
        until = [one.solved_cpu_s for one in listed if one.solved_cpu_s is not None]
        print(f"{name}: solved by {len(until)} of {len(seeds)}, after {told(until)} CPU s")


def _row(one: Solution) -> str:
    at = "never" if one.solved_at is None else f"{one.solved_at:,}"
    until = "" if one.solved_cpu_s is None else f"{one.solved_cpu_s:.1f}"
    return f"{at} | {until} | {one.cpu_s:.1f} | {one.last:.0f} | {one.greedy:.1f}, {one.shortest}"


def told(values: Sequence[float]) -> str:
    """Return mean and standard error."""
    if len(values) < 2:
        return " ".join(f"{value:.3f}" for value in values) or "none"
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return f"{float(np.mean(values)):.3f} ± {error:.3f}"
