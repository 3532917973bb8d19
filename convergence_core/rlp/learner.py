"""One generation's lesson: gains become evidence, weights, advantages and a better policy.

The order matters: rewards are taken with the baseline as it was before these outcomes; only then do
the baseline, the calibration, the experts' weights and the policy move.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from convergence_core.records import Json, Params
from convergence_core.rlp import advantage, calibration, experts, gain, policy as policies
from convergence_core.rlp.baseline import Mixture
from convergence_core.rlp.commitments import Commitment
from convergence_core.rlp.experts import Weights
from convergence_core.rlp.gain import EProcess
from convergence_core.rlp.gain_rows import score
from convergence_core.rlp.history import CandidateOutcomes, History
from convergence_core.rlp.policy import Step, StrategyPolicy, Update, ValueFunction
from convergence_core.rlp.replay import Replay, ReplayRow
from convergence_core.rlp.settings import RlpSettings


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Episode:
    """One generation for the policy: what was drawn, and what it earned."""

    state: np.ndarray
    """s_g, (N_FEATURES,)."""
    actions: tuple[int, ...]
    log_old: tuple[float, ...]
    rewards: tuple[float, ...]
    """In nats; those of silence are 0."""

    @property
    def mean(self) -> float:
        """r-_g, in nats."""
        return sum(self.rewards) / len(self.rewards)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RlpState:
    """What was learned of thinking; a value, saved with the generation."""

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
    last_gain: float = 0.0
    entropy: float = 1.0
    """Mean entropy of the last statistical predictions over the greatest possible."""
    episodes: tuple[Episode, ...] = ()
    """The last thirty, oldest first."""
    history: History = field(default_factory=History)

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

    @property
    def helps(self) -> bool:
        """Whether it may be said that thoughts help."""
        mean = sum(self.gains) / len(self.gains) if self.gains else None
        return gain.shows_help(mean, self.evidence.top_e_value, self.resolution.top_e_value)

    def to_json(self) -> Json:
        """Return a JSON value from which ``from_json`` makes an equal state."""
        return {
            "strategies": list(self.strategies),
            "policy": self.policy.to_json(),
            "value": self.value.weights.tolist(),
            "moment": self.moment,
            "mixture": list(self.mixture.weights),
            "weights": list(self.weights.values),
            "t_cal": self.t_cal,
            "n_outcomes": self.n_outcomes,
            "log_evidence": self.evidence.log_e,
            "top_log_evidence": self.evidence.top_log_e,
            "resolution": [self.resolution.log_e, self.resolution.top_log_e],
            "gains": list(self.gains),
            "last_gain": self.last_gain,
            "entropy": self.entropy,
            "episodes": [
                {
                    "state": episode.state.tolist(),
                    "actions": list(episode.actions),
                    "log_old": list(episode.log_old),
                    "rewards": list(episode.rewards),
                }
                for episode in self.episodes
            ],
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
        numbers = {name: v[name] for name in ("moment", "t_cal", "n_outcomes")}
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
            last_gain=v["last_gain"],
            entropy=v["entropy"],
            episodes=tuple(
                Episode(
                    state=np.array(episode["state"], np.float64),
                    actions=tuple(episode["actions"]),
                    log_old=tuple(episode["log_old"]),
                    rewards=tuple(episode["rewards"]),
                )
                for episode in v["episodes"]
            ),
            history=History.from_json(v["history"], params_of),
            **numbers,
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RlpUpdate:
    """What one generation taught, for tables and people."""

    rows: tuple[ReplayRow, ...]
    rewards: Mapping[str, float]
    """Thought → r_i, in nats; only those that were scored, and 0 for the silent and for those that
    moved no prediction."""
    advantages: Mapping[str, float]
    """Thought → its total advantage in the update."""
    e_values: Mapping[str, float]
    """Thought → e_i."""
    e_value: float | None
    """Of the generation; ``None``: no thought was scored."""
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
    settings: RlpSettings,
    replay: Replay,
) -> tuple[RlpState, RlpUpdate, Replay]:
    """Return what is known after a generation.

    Args:
        state: before.
        commitment: what was thought and predicted before the outcomes.
        outcomes: what came.
        next_features: s_g+1, (N_FEATURES,).
        rng: for the order of minibatches.
        settings: see there.
        replay: rows so far.
    """
    scored = score(commitment, outcomes, state.mixture, state.t_cal)
    gains = {t.thought_id: scored.gains(t.thought_id) for t in commitment.thoughts}
    e_values = {name: gain.e_value(found) for name, found in gains.items() if found}
    resolved = {name: gain.e_value(scored.resolutions(name)) for name in e_values}
    rewards = {name: gain.reward_of(found) for name, found in gains.items() if found}
    n_scored = len(state.gains) + bool(rewards)
    moment = advantage.second_moment(state.moment, list(rewards.values()), max(1, n_scored))
    sigma = advantage.sigma_of(moment, normalizes=settings.normalize_rewards)
    if commitment.estimator is not None:
        rewards |= {
            t.thought_id: 0.0
            for t in commitment.thoughts
            if t.is_silent or (t.speaks and commitment.moved_nothing(t.thought_id))
        }
    acted = [t for t in commitment.thoughts if t.thought_id in rewards]
    episodes = state.episodes
    if acted:
        episode = Episode(
            state=commitment.state,
            actions=tuple(t.action for t in acted),
            log_old=tuple(t.log_old for t in acted),
            rewards=tuple(rewards[t.thought_id] for t in acted),
        )
        episodes = (*episodes, episode)[-policies.VALUE_WINDOW :]
    values, totals, steps = critic(state.value, episodes, next_features, sigma, settings)
    improved, update = policies.improve(
        state.policy,
        steps,
        rng,
        clip_epsilon=settings.clip_epsilon,
        kl_target=settings.kl_target,
    )
    replay = replay.after(scored.rows, commitment.thoughts)
    e_value = _mean(e_values)
    n_outcomes = state.n_outcomes + len(scored.rows)
    t_cal = state.t_cal
    if calibration.is_due(state.n_outcomes, n_outcomes):
        forecasts, observed = replay.forecasts()
        t_cal = calibration.calibrated(forecasts, observed) if observed else t_cal
    own = [value for name, found in gains.items() if found for value in found]
    mean_gain = float(np.mean(own)) if own else None
    after = replace(
        state,
        policy=improved,
        value=values,
        moment=moment,
        mixture=state.mixture.after(scored.likelihoods, decay=settings.ema_decay),
        weights=state.weights.after(_evidence_by_action(commitment, e_values)),
        t_cal=t_cal,
        n_outcomes=n_outcomes,
        evidence=state.evidence.after(e_value),
        resolution=state.resolution.after(_mean(resolved)),
        gains=state.gains if mean_gain is None else (*state.gains, mean_gain),
        last_gain=state.last_gain if mean_gain is None else mean_gain,
        episodes=episodes,
    )
    lesson = RlpUpdate(
        rows=scored.rows,
        rewards=rewards,
        advantages={t.thought_id: a for t, a in zip(acted, totals, strict=True)} if acted else {},
        e_values=e_values,
        e_value=e_value,
        resolution_e_values=resolved,
        update=update,
        sigma=sigma,
    )
    return after, lesson, replay


def _mean(e_values: Mapping[str, float]) -> float | None:
    """Return the mean of thoughts' e-values, an e-value again; ``None``: there is none."""
    return float(np.mean(list(e_values.values()))) if e_values else None


def _evidence_by_action(commitment: Commitment, e_values: Mapping[str, float]) -> dict[int, float]:
    """Return action → mean e-value of its thoughts."""
    found: dict[int, list[float]] = {}
    for thought in commitment.thoughts:
        if thought.thought_id in e_values:
            found.setdefault(thought.action, []).append(e_values[thought.thought_id])
    return {action: experts.pooled_evidence(values) for action, values in found.items()}


def critic(
    value: ValueFunction,
    episodes: tuple[Episode, ...],
    next_features: np.ndarray,
    sigma: float,
    settings: RlpSettings,
) -> tuple[ValueFunction, list[float], list[Step]]:
    """Return the next V, the total advantages of the last episode, and the steps to learn from."""
    if not episodes:
        return value, [], []
    gamma, lam = settings.gamma, settings.gae_lambda
    states = np.array([episode.state for episode in episodes])
    known = value.of(states)
    found = advantage.deltas(
        [episode.mean / sigma for episode in episodes],
        known.tolist(),
        float(value.of(next_features)),
        gamma=gamma,
    )
    raw = advantage.generalized(found, gamma=gamma, lam=lam)
    over_time = advantage.scaled_advantages(raw, gamma=gamma, lam=lam)
    totals: list[float] = []
    steps: list[Step] = []
    recent = list(zip(episodes, over_time, strict=True))[-policies.N_GENERATIONS :]
    for episode, later in recent:
        of_group = advantage.group_advantages(episode.rewards, sigma)
        totals = [a + advantage.ALPHA * float(later) for a in of_group]
        steps += [
            Step(state=episode.state, action=action, log_old=log_old, advantage=total)
            for action, log_old, total in zip(
                episode.actions, episode.log_old, totals, strict=True
            )
        ]
    return value.after(states, known + raw), totals, steps
