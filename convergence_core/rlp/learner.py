"""Update of RLP after a generation: evidence, weights, advantages, policy.

The order matters: rewards are taken with the baseline as it was before these outcomes; only then do
the baseline, the calibration, the experts' weights and the policy move.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from convergence_core.records import Json, Params, fields_of
from convergence_core.rlp import advantage, gain, policy as policies
from convergence_core.rlp.baseline import Mixture
from convergence_core.rlp.commitments import Commitment
from convergence_core.rlp.experts import Weights
from convergence_core.rlp.gain import EProcess
from convergence_core.rlp.gain_rows import score
from convergence_core.rlp.history import TrialHistory
from convergence_core.rlp.outcomes import CandidateOutcomes
from convergence_core.rlp.policy import Steps, StrategyPolicy, Update, ValueFunction
from convergence_core.rlp.replay import Replay, ReplayRow, calibrated, calibration_is_due


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Episode:
    """One generation for the policy: actions drawn, and their rewards."""

    state: np.ndarray
    """s_g, (N_FEATURES,)."""
    actions: tuple[int, ...]
    log_old: tuple[float, ...]
    rewards: tuple[float, ...]
    """In nats; those of no thought are 0."""

    @property
    def mean(self) -> float:
        """r-_g, in nats."""
        return sum(self.rewards) / len(self.rewards)

    def to_json(self) -> dict[str, Json]:
        """Return lists from which ``from_json`` makes an equal episode."""
        return {
            "state": self.state.tolist(),
            "actions": [*self.actions],
            "log_old": [*self.log_old],
            "rewards": [*self.rewards],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Episode":
        """Rebuild what ``to_json`` wrote."""
        state = np.array(value["state"], np.float64)
        return cls(state=state, **{n: tuple(value[n]) for n in ("actions", "log_old", "rewards")})


_NUMBERS: Final = ("moment", "t_cal", "n_outcomes", "entropy")
"""Fields of a state that are stored as they are."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RlpState:
    """What was learned of thoughts; a value, saved with the generation."""

    strategies: tuple[str, ...]
    """Of the actions from 1."""
    policy: StrategyPolicy
    value: ValueFunction = field(default_factory=ValueFunction.zero)
    moment: float = 1.0
    """sigma^2, nats squared."""
    mixture: Mixture = field(default_factory=Mixture)
    weights: Weights
    t_cal: float = 1.0
    n_outcomes: int = 0
    """Outcomes that a thought was scored on, each counted once per thought."""
    evidence: EProcess = field(default_factory=EProcess)
    """Against "no thought predicts better than the baseline"."""
    resolution: EProcess = field(default_factory=EProcess)
    """Against "no thought tells candidates apart": over thoughts' own average forecasts."""
    gains: tuple[float, ...] = ()
    """Mean gain of each generation with a scored thought, in nats."""
    entropy: float = 1.0
    """Mean entropy of the last statistical predictions over the greatest possible."""
    episodes: tuple[Episode, ...] = ()
    """The last thirty, oldest first."""
    history: TrialHistory = field(default_factory=TrialHistory)

    @property
    def last_gain(self) -> float:
        """Of the last generation with a scored thought, in nats; 0 before."""
        return self.gains[-1] if self.gains else 0.0

    @classmethod
    def first(cls, strategies: tuple[str, ...]) -> "RlpState":
        """Return the state before any thought.

        Args:
            strategies: names of the actions from 1.
        """
        n = len(strategies)
        return cls(
            strategies=strategies, policy=StrategyPolicy.uniform(n + 1), weights=Weights.first(n)
        )

    def to_json(self) -> Json:
        """Return a JSON value from which ``from_json`` makes an equal state."""
        return {
            "strategies": [*self.strategies],
            "policy": self.policy.to_json(),
            "value": self.value.weights.tolist(),
            "mixture": [*self.mixture.weights],
            "weights": [*self.weights.values],
            "log_evidence": self.evidence.log_e,
            "top_log_evidence": self.evidence.top_log_e,
            "resolution": [self.resolution.log_e, self.resolution.top_log_e],
            "gains": [*self.gains],
            **fields_of(self, *_NUMBERS),
            "episodes": [episode.to_json() for episode in self.episodes],
            "history": self.history.to_json(),
        }

    @classmethod
    def from_json(cls, value: Json, params_of: Mapping[str, Params]) -> "RlpState":
        """Rebuild what ``to_json`` wrote.

        Args:
            value: as written.
            params_of: candidate → its parameters, which the archive has.

        Raises:
            ValueError: the value was not made by ``to_json``.
        """
        if not isinstance(value, dict) or "policy" not in value:
            raise ValueError(f"not a state of RLP: {str(value)[:80]}")
        v: dict[str, Any] = value  # as ``to_json`` wrote it
        return cls(
            strategies=tuple(v["strategies"]),
            policy=StrategyPolicy.from_json(v["policy"]),
            value=ValueFunction(np.array(v["value"], np.float64)),
            mixture=Mixture(tuple(v["mixture"])),
            weights=Weights(tuple(v["weights"])),
            evidence=EProcess(v["log_evidence"], v["top_log_evidence"]),
            # A run that began before resolution was measured has no evidence of it.
            resolution=EProcess(*v.get("resolution", ())),
            gains=tuple(v["gains"]),
            episodes=tuple(Episode.from_json(episode) for episode in v["episodes"]),
            history=TrialHistory.from_json(v["history"], params_of),
            **{name: v[name] for name in _NUMBERS},
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RlpUpdate:
    """What one generation taught, for tables and people."""

    rows: tuple[ReplayRow, ...]
    rewards: Mapping[str, float]
    """Thought → r_i, in nats; only those that were scored, and 0 for no thought and for those that
    moved no prediction."""
    advantages: Mapping[str, float]
    """Thought → its total advantage in the update."""
    e_values: Mapping[str, float]
    """Thought → e_i."""
    e_value: float | None
    """Of the generation; ``None`` if no thought was scored."""
    resolution_e_values: Mapping[str, float]
    """Thought → e-value of its resolution."""
    update: Update
    sigma: float


def learn(
    state: RlpState,
    commitment: Commitment,
    outcomes: CandidateOutcomes,
    *,
    next_features: np.ndarray,
    rng: np.random.Generator,
    replay: Replay,
) -> tuple[RlpState, RlpUpdate, Replay]:
    """Return what is known after a generation.

    Args:
        state: before.
        commitment: thoughts and predictions, made before the outcomes.
        outcomes: what came.
        next_features: s_g+1, (N_FEATURES,).
        rng: for the order of minibatches.
        replay: rows so far.
    """
    scored = score(commitment, outcomes, state.mixture, state.t_cal)
    rows_of = {
        t.thought_id: rows for t in commitment.thoughts if (rows := scored.own(t.thought_id))
    }
    gains = {name: [row.gain for row in rows] for name, rows in rows_of.items()}
    rewards = {name: gain.reward_of(values) for name, values in gains.items()}
    e_values = {name: gain.e_value(values) for name, values in gains.items()}
    resolutions = {name: [row.resolution or 0.0 for row in rows] for name, rows in rows_of.items()}
    resolution_e_values = {name: gain.e_value(values) for name, values in resolutions.items()}
    n_scored = len(state.gains) + bool(rewards)
    moment = advantage.second_moment(state.moment, [*rewards.values()], max(1, n_scored))
    sigma = advantage.sigma_of(moment)
    rewards |= _unmoved(commitment)
    acted = [t for t in commitment.thoughts if t.thought_id in rewards]
    episode = Episode(
        state=commitment.state,
        actions=tuple(t.action for t in acted),
        log_old=tuple(t.log_old for t in acted),
        rewards=tuple(rewards[t.thought_id] for t in acted),
    )
    episodes = (*state.episodes, *([episode] if acted else []))[-policies.VALUE_WINDOW :]
    value, totals, steps = critic(state.value, episodes, next_features, sigma)
    policy, update = policies.improve(state.policy, steps, rng)
    replay = replay.after(scored.rows, commitment.thoughts)
    every = [value for values in gains.values() for value in values]
    after = replace(
        state,
        policy=policy,
        value=value,
        moment=moment,
        mixture=state.mixture.after(scored.likelihoods),
        weights=state.weights.after(_by_action(commitment, e_values)),
        t_cal=_t_cal(state, len(scored.rows), replay),
        n_outcomes=state.n_outcomes + len(scored.rows),
        evidence=state.evidence.after(_mean(e_values)),
        resolution=state.resolution.after(_mean(resolution_e_values)),
        gains=(*state.gains, float(np.mean(every))) if every else state.gains,
        episodes=episodes,
    )
    taught = RlpUpdate(
        rows=scored.rows,
        rewards=rewards,
        advantages={t.thought_id: a for t, a in zip(acted, totals, strict=True)} if acted else {},
        e_values=e_values,
        e_value=_mean(e_values),
        resolution_e_values=resolution_e_values,
        update=update,
        sigma=sigma,
    )
    return after, taught, replay


def _unmoved(commitment: Commitment) -> dict[str, float]:
    """Return thought → reward 0, of no thought and of those that moved no prediction."""
    if commitment.estimator is None:
        return {}
    return {
        t.thought_id: 0.0
        for t in commitment.thoughts
        if t.is_no_op or (t.is_written and commitment.moved_nothing(t.thought_id))
    }


def _t_cal(state: RlpState, n_new: int, replay: Replay) -> float:
    """Return the temperature after so many new outcomes."""
    if not calibration_is_due(state.n_outcomes, state.n_outcomes + n_new):
        return state.t_cal
    forecasts, observed = replay.forecasts()
    return calibrated(forecasts, observed) if observed else state.t_cal


def _mean(e_values: Mapping[str, float]) -> float | None:
    """Return the mean of thoughts' e-values, an e-value again; ``None`` if there is none."""
    return float(np.mean([*e_values.values()])) if e_values else None


def _by_action(commitment: Commitment, e_values: Mapping[str, float]) -> dict[int, float]:
    """Return action → mean e-value of its thoughts, an e-value again."""
    by_action = defaultdict(list)
    for thought in commitment.thoughts:
        if thought.thought_id in e_values:
            by_action[thought.action].append(e_values[thought.thought_id])
    return {action: float(np.mean(values)) for action, values in by_action.items()}


def critic(
    value: ValueFunction,
    episodes: tuple[Episode, ...],
    next_features: np.ndarray,
    sigma: float,
) -> tuple[ValueFunction, list[float], Steps]:
    """Return the next V, the total advantages of the last episode, and the steps to learn from."""
    if not episodes:
        return value, [], Steps.none()
    states = np.array([episode.state for episode in episodes])  # (n, N_FEATURES)
    values = value.of(states)
    raw = advantage.generalized(
        np.array([episode.mean / sigma for episode in episodes]),
        np.append(values, value.of(next_features)),
    )
    over_time = advantage.scaled(raw)
    recent = [*zip(episodes, over_time, strict=True)][-policies.N_GENERATIONS :]
    totals = [
        advantage.group_advantages(episode.rewards, sigma) + advantage.ALPHA * later
        for episode, later in recent
    ]  # A_i + alpha A-hat_g
    lengths = [len(episode.actions) for episode, _ in recent]
    steps = Steps(
        np.repeat(states[-len(recent) :], lengths, axis=0),
        np.concatenate([episode.actions for episode, _ in recent]),
        np.concatenate([episode.log_old for episode, _ in recent]),
        np.concatenate(totals),
    )
    return value.after(states, values + raw), totals[-1].tolist(), steps
