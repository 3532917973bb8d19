"""Simulated prompt changes: which learner chooses best at equal evaluations.

``SimulatedCopies`` steps many copies of the world in parallel. One evaluation is one measured score: of an
episode's first prompt, or after a change. Two variants are harder than a table of category and change: *order
effects*, where a change's gain depends on earlier changes, and *noisy* scores. Each learner then acts greedily (a
policy's most likely action, a bandit's highest mean). True scores on new prompts judge it, scaled so that random
legal choices give 0 and each category's exactly known best sequence gives 1.
"""

import csv
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.policy.choosers import (
    N_CHANGES,
    STOPS,
    CategoryThompson,
    Chooser,
    StateThompson,
    random_legal,
    sequences,
)
from benchmarks.tables import append, header, row, with_error
from convergence_core.policy.distribution import Ints
from convergence_core.policy.learner import PPOState, train
from convergence_core.policy.network import ActorCritic, Floats
from convergence_core.policy.prompt_state import N_PROGRESS, PROMPT_ACTIONS
from convergence_core.policy.rollout import EnvironmentStep, Offer, choose
from convergence_core.policy.settings import PPOConfig
from convergence_core.records import CATEGORIES

COPIES: Final = 32
MAX_STEPS: Final = 5
START: Final = 0.5
"""True score of every prompt before its first change."""
BUDGETS: Final = (2_560, 10_240, 20_480)
"""Numbers of evaluations after which each learner is judged."""


VARIANTS: Final = {
    "additive, exact": {"order_effect": 0.0, "noise": 0.0},
    "default": {"order_effect": 0.03, "noise": 0.02},
    "strong order, noisy": {"order_effect": 0.08, "noise": 0.05},
}
"""Task variant → standard deviations of pair gains and of measured scores."""


class SimulatedPrompts:
    """Prompts of eight categories, with tables of gains for each change and each pair of changes.

    A prompt is its category's direction plus equally strong noise. Measured scores are noisy.
    """

    def __init__(self, seed: int, *, order_effect: float, noise: float) -> None:
        rng = np.random.default_rng([77, seed])
        self.noise, self.embedding_dim = noise, 64
        self.gains = rng.normal(0.03, 0.08, size=(8, N_CHANGES))
        self.pairs = order_effect * rng.normal(size=(8, N_CHANGES, N_CHANGES))
        """Extra gain of a change (last axis) after another, (n_categories, n_changes, n_changes)."""
        directions = rng.normal(size=(8, self.embedding_dim))
        self.directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)


class SimulatedCopies:
    """Copies of the simulated prompts, stepped together. Counts evaluations."""

    def __init__(self, world: SimulatedPrompts, n: int) -> None:
        self.world, self.n = world, n
        self.n_evaluations = 0
        self.category = np.zeros(n, dtype=np.int64)
        self.directions = np.zeros((n, world.embedding_dim), dtype=np.float32)
        self.used = np.zeros((n, N_CHANGES), dtype=bool)
        self.last = np.full(n, -1)
        self.worth = np.full(n, START)
        self.score = np.full(n, START)
        self._rng = np.random.default_rng(0)

    def reset(self, rng: np.random.Generator) -> Offer:
        """Start an episode in each copy."""
        self._rng = rng
        self._begin(np.ones(self.n, dtype=bool))
        return self.offer()

    def offer(self) -> Offer:
        """Return each copy's observation, as in ``PromptEpisode``, and its mask."""
        n_used = self.used.sum(axis=1)
        rest = np.zeros((self.n, N_PROGRESS), dtype=np.float32)
        n_actions = len(PROMPT_ACTIONS)
        rest[:, :N_CHANGES] = self.used
        begun = self.last >= 0
        rest[np.flatnonzero(begun), n_actions + self.last[begun]] = 1.0
        rest[:, 2 * n_actions] = n_used / MAX_STEPS
        rest[:, 2 * n_actions + 1 + CATEGORIES.index("none")] = 1.0
        rest[:, -2], rest[:, -1] = self.score, 1.0
        legal = np.ones((self.n, n_actions), dtype=bool)
        legal[:, :N_CHANGES] = ~self.used & (n_used < MAX_STEPS)[:, None]
        return Offer(observations=np.hstack([self.directions, rest]), legal=legal)

    def step(self, actions: Ints) -> EnvironmentStep:
        """Apply an action in each copy."""
        changes = np.flatnonzero(actions != STOPS)
        a, c = actions[changes], self.category[changes]
        pairs = self.world.pairs[c, :, a]  # (n, changes before)
        gain = self.world.gains[c, a] + (pairs * self.used[changes]).sum(axis=1)
        before = self.score[changes]
        self.worth[changes] = np.clip(self.worth[changes] + gain, 0.0, 1.0)
        self.score[changes] = self._measured(self.worth[changes])
        self.used[changes, a] = True
        self.last[changes] = a
        self.n_evaluations += changes.size
        rewards = np.zeros(self.n)
        rewards[changes] = self.score[changes] - before
        over = (actions == STOPS) | (self.used.sum(axis=1) == MAX_STEPS)
        final = self.offer().observations
        self._begin(over)
        return EnvironmentStep(
            offer=self.offer(),
            rewards=rewards,
            terminated=over,
            truncated=np.zeros(self.n, dtype=bool),
            final_observations=final,
        )

    def _begin(self, over: np.ndarray) -> None:
        n, d = int(over.sum()), self.world.embedding_dim
        self.n_evaluations += n
        self.category[over] = self._rng.integers(len(self.world.directions), size=n)
        seen = self.world.directions[self.category[over]]
        seen = seen + self._rng.normal(scale=d**-0.5, size=(n, d))
        self.directions[over] = seen / np.linalg.norm(seen, axis=1, keepdims=True)
        self.used[over], self.last[over], self.worth[over] = False, -1, START
        self.score[over] = self._measured(self.worth[over])

    def _measured(self, worth: Floats) -> Floats:
        noise = self.world.noise * self._rng.normal(size=worth.shape)
        return np.clip(worth + noise, 0.0, 1.0)


def best_gain(world: SimulatedPrompts) -> float:
    """Return each category's best gain over all sequences, averaged over categories."""
    best = np.zeros(len(world.gains))
    for sequence in sequences(MAX_STEPS):
        worth = np.full(len(world.gains), START)
        for at, a in enumerate(sequence):
            gain = world.gains[:, a] + world.pairs[:, list(sequence[:at]), a].sum(axis=1)
            worth = np.clip(worth + gain, 0.0, 1.0)
        best = np.maximum(best, worth - START)
    return float(best.mean())


Decide = Callable[[Offer, Ints], Ints]
"""(offer, category) -> actions, (N,)."""


def true_gain(world: SimulatedPrompts, decide: Decide, seed: int, n: int = 4_000) -> float:
    """Return an episode's mean true gain on new prompts, with equal weight per category."""
    copies = SimulatedCopies(world, n)
    offer = copies.reset(np.random.default_rng([5, seed]))
    category, gain, open_ = copies.category.copy(), np.zeros(n), np.ones(n, dtype=bool)
    while open_.any():
        before = copies.worth.copy()
        actions = decide(offer, copies.category)
        step = copies.step(actions)
        # A finished copy already shows its next episode, so the gain comes from the tables.
        ended = step.terminated & open_
        gain[open_ & ~ended] = copies.worth[open_ & ~ended] - START
        last = ended & (actions != STOPS)
        gain[last] = _after(
            world, category[last], offer.observations[last], actions[last], before[last]
        )
        open_ &= ~ended
        offer = step.offer
    return float(np.mean([gain[category == c].mean() for c in np.unique(category)]))


def _after(
    world: SimulatedPrompts, c: Ints, observations: Floats, a: Ints, before: Floats
) -> Floats:
    used = observations[:, world.embedding_dim : world.embedding_dim + N_CHANGES]
    gain = world.gains[c, a] + (world.pairs[c, :, a] * used).sum(axis=1)
    after: Floats = np.clip(before + gain, 0.0, 1.0)
    return after - START


def of_policy(networks: ActorCritic) -> Decide:
    """Return a function that chooses a policy's most likely actions."""
    return lambda offer, _: choose(networks, offer).actions


def learned_by_ppo(
    world: SimulatedPrompts, seed: int, budgets: tuple[int, ...]
) -> Iterator[tuple[int, Decide]]:
    """Yield each budget and the policy after its last affordable update."""
    rng, copies = np.random.default_rng([1, seed]), SimulatedCopies(world, COPIES)
    n_steps, n_actions = budgets[-1], len(PROMPT_ACTIONS)
    dim = world.embedding_dim + N_PROGRESS
    config = PPOConfig(input_dim=dim, action_dim=n_actions, total_steps=n_steps)
    state, left = PPOState.begin(config, rng), [*budgets]
    for after, _, _ in train(state, copies, config, n_updates=n_steps, rng=rng):
        while left and copies.n_evaluations > left[0]:
            yield left.pop(0), of_policy(state.networks)
        if not left:
            return
        state = after


def learned_by(
    chooser: Chooser, world: SimulatedPrompts, seed: int, budgets: tuple[int, ...]
) -> Iterator[tuple[int, Decide]]:
    """Yield each budget and the chooser once the budget is spent."""
    rng, copies = np.random.default_rng([2, seed]), SimulatedCopies(world, COPIES)
    offer, left = copies.reset(rng), [*budgets]
    while left:
        category = copies.category.copy()
        actions = chooser.choose(offer, category, rng)
        step = copies.step(actions)
        while left and copies.n_evaluations > left[0]:
            yield left.pop(0), lambda offer, category: chooser.choose(offer, category, None)
        chooser.learn(offer, category, actions, step.rewards)
        offer = step.offer


LEARNERS: Final = ("ours", "LinTS", "Thompson, category told")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one learner on one world."""

    variant: str
    learner: str
    seed: int
    budget: int
    share: float
    """Scaled gain: random legal choices give 0, each category's best sequence 1."""


def outcomes(
    variant: str, learner: str, seed: int, budgets: tuple[int, ...] = BUDGETS
) -> list[Outcome]:
    """Return a learner's results at each budget."""
    world = SimulatedPrompts(seed, **VARIANTS[variant])
    best, drawn = best_gain(world), np.random.default_rng([4, seed])
    low = true_gain(world, lambda offer, _: random_legal(offer, drawn), seed, n=20_000)
    return [
        Outcome(
            variant=variant,
            learner=learner,
            seed=seed,
            budget=budget,
            share=(true_gain(world, decide, seed) - low) / (best - low),
        )
        for budget, decide in _learned(learner, world, seed, budgets)
    ]


def _learned(
    learner: str, world: SimulatedPrompts, seed: int, budgets: tuple[int, ...]
) -> Iterator[tuple[int, Decide]]:
    if learner == "ours":
        return learned_by_ppo(world, seed, budgets)
    choosers: dict[str, Chooser] = {
        "LinTS": StateThompson(world.embedding_dim + N_PROGRESS),
        "Thompson, category told": CategoryThompson(len(world.gains)),
    }
    return learned_by(choosers[learner], world, seed, budgets)


def run(
    seeds: range,
    names: Sequence[str],
    learners: Sequence[str],
    path: Path,
    budgets: tuple[int, ...] = BUDGETS,
) -> None:
    """Run learners on variants and append their results to a CSV file."""
    for seed in seeds:
        for variant in names:
            for learner in learners:
                for reached in outcomes(variant, learner, seed, budgets):
                    append(path, [asdict(reached)])
                    print(reached, flush=True)


def table(path: Path) -> str:
    """Return a table per variant: shares with standard errors, and our paired lead."""
    shares: dict[tuple[str, str, int], dict[int, float]] = defaultdict(dict)
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            key = line["variant"], line["learner"], int(line["budget"])
            shares[key][int(line["seed"])] = float(line["share"])
    lines = []
    for variant in dict.fromkeys(key[0] for key in shares):
        budgets = sorted({key[2] for key in shares if key[0] == variant})
        n_seeds = max(len(seeds) for key, seeds in shares.items() if key[0] == variant)
        lines += ["", f"{variant}, {n_seeds} seeds", ""]
        heads = [f"{budget:,}" for budget in budgets]
        lines.append(header("", *heads, f"ours ahead at {budgets[-1]:,}"))
        listed = list(dict.fromkeys(key[1] for key in shares if key[0] == variant))
        last = {name: shares[variant, name, budgets[-1]] for name in listed}
        for name in sorted(listed, key=lambda name: -np.mean([*last[name].values()])):
            cells = [with_error([*shares[variant, name, budget].values()]) for budget in budgets]
            ours = last.get("ours", {})
            paired = [ours[seed] - share for seed, share in last[name].items() if seed in ours]
            lead = "" if name == "ours" or not paired else with_error(paired)
            lines.append(row(name, *cells, lead))
    return "\n".join(lines)
