"""Emphasis on breeding operators, chosen for each generation by a policy that PPO learns.

After each generation the policy chooses what the next one's pool lays its emphasis on, given a state of the
search, and is rewarded with the gain of the leader's posterior mean per evaluation,

    r = max(0, m_leader after - m_leader before) / s * n_first / n                                  (1)

Both means are of the posterior after the generation. Choice and reward are kept in the sampler's memory with
what PPO has to know of them, so they are journaled with the generation; a run never changes its policy.

Notation: m are posterior means, s the standard deviation of those of all candidates asked, n the evaluations
of the generation and n_first those of the first one. The policy is that of ``convergence_core.policy``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from convergence_core.policy.network import ActorCritic
from convergence_core.policy.rollout import Offer, choose
from convergence_core.records import Json
from convergence_core.search.evolution import OPERATORS, BreedingMix
from convergence_core.search.evolution.mix import FIXED_SHARES
from convergence_core.search.meta_optimizer.gains import (
    LEADER_KEY,
    GenerationGains,
    entry_of,
    numbers_of,
)

EMPHASIS = 0.7
"""Share of the pool that an emphasized operator gets at least; the rest is as in the fixed pool."""


def emphasized(operator: str, exploration: float) -> BreedingMix:
    """Return the mix with an emphasis on one operator."""
    shares = (1.0 - EMPHASIS) * np.asarray(FIXED_SHARES)
    shares[OPERATORS.index(operator)] += EMPHASIS
    return BreedingMix(shares=tuple(shares.tolist()), exploration=exploration)


EMPHASES: Mapping[str, BreedingMix | None] = {
    "balanced": None,
    "thompson": BreedingMix(exploration=0.0),
    "crossover": emphasized("crossover", 1.0),
    "small_step": emphasized("small_step", 0.0),
    "large_step": emphasized("large_step", 1.0),
    "fresh": emphasized("fresh", 3.0),
}
"""Action → mix of the next generation; ``thompson``: draws of the posterior alone, nobody explores."""
ACTIONS = tuple(EMPHASES)
N_FACTS = 10
STATE_DIM = N_FACTS + 2 * len(ACTIONS)
"""Numbers in a state: facts of the search, the recent reward of each action, and the last action."""
STATE_NAME = "search-state-1"
"""Of what the numbers mean; a policy of another one is refused."""
RECENT = 0.5
"""Weight of the latest reward of an action in its recent one."""
MOST_STEPS = 1_000
"""Steps of a run that are kept for learning, the first."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EmphasisStep:
    """One choice of a run, with what came of it."""

    state: np.ndarray
    """(STATE_DIM,)."""
    legal: np.ndarray
    """Of ``ACTIONS``, (n_actions,)."""
    action: int
    log_prob: float
    """In nats, when it was chosen."""
    value: float
    """Expected return, when it was chosen."""
    reward: float = 0.0
    """Of the generation after it (eq. 1)."""

    def to_json(self) -> Json:
        """Return a JSON value from which ``from_json`` makes an equal step."""
        return [
            self.state.tolist(),
            self.legal.tolist(),
            self.action,
            self.log_prob,
            self.value,
            self.reward,
        ]

    @classmethod
    def from_json(cls, value: Json) -> "EmphasisStep":
        """Rebuild a step from ``to_json``.

        Raises:
            ValueError: the value was not made by ``to_json``.
        """
        parts = value if isinstance(value, list) and len(value) == 6 else []
        state = numbers_of(parts[0], STATE_DIM) if parts else None
        legal = numbers_of(parts[1], len(ACTIONS)) if parts else None
        rest = numbers_of(parts[2:], 4) if parts else None
        if state is None or legal is None or rest is None or rest[0] not in range(len(ACTIONS)):
            raise ValueError("not a step of a meta-optimizer, as `to_json` writes it")
        return cls(
            state=np.asarray(state, np.float32),
            legal=np.asarray(legal, bool),
            action=int(rest[0]),
            log_prob=rest[1],
            value=rest[2],
            reward=rest[3],
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LearnedEmphasis:
    """A meta-optimizer of the product's sampler that asks a policy."""

    networks: ActorCritic
    n_generations: int
    """Of the run, as planned."""

    def mix(self, memory: Mapping[str, Json]) -> BreedingMix | None:
        """Return the mix of the next generation; ``None``: the fixed one."""
        pending = entry_of(memory).get("pending")
        return (
            None if pending is None else EMPHASES[ACTIONS[EmphasisStep.from_json(pending).action]]
        )

    def learn(self, memory: Mapping[str, Json], found: GenerationGains) -> Mapping[str, Json]:
        """Return the steps so far, and the choice for the next generation."""
        entry = entry_of(memory)
        n_first = numbers_of([entry.get("n_first", found.n_cells)], 1) or [1.0]
        recent = numbers_of(entry.get("recent"), len(ACTIONS)) or [0.0] * len(ACTIONS)
        flat = numbers_of([entry.get("n_flat", 0)], 1) or [0.0]
        steps, pending, last = entry.get("steps"), entry.get("pending"), None
        done: list[Json] = list(steps) if isinstance(steps, list) else []
        n_flat = 0 if found.of_leader > 0.0 else int(flat[0]) + 1
        if pending is not None:
            step = EmphasisStep.from_json(pending)
            last = step.action
            reward = found.of_leader * n_first[0] / max(1, found.n_cells)  # (eq. 1)
            recent[last] += RECENT * (reward / (1.0 + reward) - recent[last])
            kept = (
                EmphasisStep.from_json([*pending[:5], reward])
                if isinstance(pending, list)
                else step
            )
            done = [*done, kept.to_json()][:MOST_STEPS]
        state = self._state(found, recent, n_flat, last)
        return {
            LEADER_KEY: found.leader_after,
            "n_first": n_first[0],
            "n_flat": n_flat,
            "recent": list(recent),
            "steps": done,
            "pending": self._chosen(state, found).to_json(),
        }

    def _chosen(self, state: np.ndarray, found: GenerationGains) -> EmphasisStep:
        """Draw an action; a function of the evidence, so that a resumed run draws the same."""
        key = [
            found.generation,
            len(found.competitors.archive),
            int(found.leader_after, 16) % 2**32,
        ]
        rng = np.random.default_rng(key)
        legal = legal_actions(found)
        chosen = choose(self.networks, Offer(observations=state[None], legal=legal[None]), rng)
        return EmphasisStep(
            state=state,
            legal=legal,
            action=int(chosen.actions[0]),
            log_prob=float(chosen.log_probs[0]),
            value=float(chosen.values[0]),
        )

    def _state(
        self, found: GenerationGains, recent: list[float], n_flat: int, last: int | None
    ) -> np.ndarray:
        """Return the state of a search after a generation, numbers in about [0, 1], (STATE_DIM,)."""
        field = found.competitors
        (mean, sd), encoding = field.marginals, field.encoding
        spread, leader = max(float(mean.std()), 1e-9), field.ranking[0]
        n_dims, n_numbers = len(encoding.names), len(encoding.number_names)
        evidence = field.fitted.learned
        facts = [
            min(1.0, (found.generation + 1) / self.n_generations),
            np.log10(len(mean)) / 3.0,
            np.clip((mean[leader] - mean.mean()) / spread, 0.0, 5.0) / 5.0,
            np.clip(sd[leader] / spread, 0.0, 2.0) / 2.0,
            min(n_flat, 5) / 5.0,
            diversity(field.genes[field.ranking[: max(2, len(mean) // 4)]], n_numbers),
            float((found.operators >= 0).mean()),
            np.log10(n_dims) / 2.0,
            n_numbers / n_dims,
            float(evidence is not None and len(evidence.evidence.case_ids) > 1),
        ]
        one_hot = [float(i == last) for i in range(len(ACTIONS))]
        return np.asarray([*facts, *recent, *one_hot], np.float32)


def legal_actions(found: GenerationGains) -> np.ndarray:
    """Return which of ``ACTIONS`` would do something of their own here, (n_actions,)."""
    encoding = found.competitors.encoding
    is_wide = len(encoding.names) > 1
    needs = {"crossover": is_wide, "large_step": is_wide or bool(encoding.number_names)}
    return np.array([needs.get(action, True) for action in ACTIONS])


def diversity(genes: np.ndarray, n_numbers: int) -> float:
    """Return how unlike candidates are, in [0, 1]: mean over parameters.

    Of a number twice its standard deviation; of a choice the chance that two of them differ.
    """
    filled = np.nan_to_num(genes, nan=-1.0)
    found = [min(1.0, 2.0 * float(column.std())) for column in filled[:, :n_numbers].T]
    for column in filled[:, n_numbers:].T:
        _, counts = np.unique(column, return_counts=True)
        found.append(1.0 - float(((counts / len(column)) ** 2).sum()))
    return float(np.mean(found))
