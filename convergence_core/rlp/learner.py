"""Update of RLP after a generation: gains, evidence, weight, advantages, policy.

The order matters: gains use the posterior from before these outcomes. Only then are the model's
weight and the policy updated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from convergence_core.records import Json, fields_of
from convergence_core.rlp import advantage, gain, policy as policies
from convergence_core.rlp.commitments import ACTIONS, Commitment
from convergence_core.rlp.experts import FIRST_WEIGHT, weight_after
from convergence_core.rlp.gain import EProcess
from convergence_core.rlp.outcomes import CandidateOutcomes
from convergence_core.rlp.policy import ActionPolicy, Steps, Update, ValueFunction
from convergence_core.rlp.quantiles import Quantiles

SILENT: Final = 1.0 / 3.0
"""Minimum share of generations that forecast without notes, as a control for their effect."""
CAPACITY: Final = 10_000
"""Maximum number of remembered rewards."""
MANY_TRIALS: Final = 200
"""Number of trials that counts as a full history."""
MOST_SHOWN: Final = 200
"""Maximum forecasts that later prompts show with their outcomes."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Episode:
    """One generation for the policy: the sampled action, and its reward."""

    state: np.ndarray
    """s_g, (N_FEATURES,)."""
    action: int
    log_old: float
    reward: float
    """Reward in nats."""

    def to_json(self) -> dict[str, Json]:
        """Return lists from which ``from_json`` makes an equal episode."""
        return {
            "state": self.state.tolist(),
            "actions": [self.action],
            "log_old": [self.log_old],
            "rewards": [self.reward],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Episode":
        """Rebuild what ``to_json`` wrote."""
        ((action,), (log_old,), (reward,)) = (value[n] for n in ("actions", "log_old", "rewards"))
        state = np.array(value["state"], np.float64)
        return cls(state=state, action=action, log_old=log_old, reward=reward)


_NUMBERS: Final = ("moment", "weight", "notes", "n_own", "n_better")
"""Fields of a state that are stored unchanged."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RlpState:
    """Immutable learned state of thoughts, saved with the generation."""

    policy: ActionPolicy
    """Policy over ``ACTIONS``."""
    value: ValueFunction = field(default_factory=ValueFunction.zero)
    moment: float = 1.0
    """sigma^2, nats squared."""
    weight: float = FIRST_WEIGHT
    """Weight of the model's forecasts in the draws."""
    evidence: EProcess = field(default_factory=EProcess)
    """Evidence against "no thought predicts better than the posterior"."""
    resolution: EProcess = field(default_factory=EProcess)
    """Evidence against "no thought distinguishes candidates", from gains over the forecasts'
    average.
    """
    gains: tuple[float, ...] = ()
    """Mean gain of each scored generation, in nats."""
    episodes: tuple[Episode, ...] = ()
    """The last thirty, oldest first, to which the policy and V are fitted."""
    n_own: int = 0
    """Number of evaluated settings that the model proposed."""
    n_better: int = 0
    """Number of these that beat the mean of the search's choices in the same generation."""
    notes: str = ""
    """Latest notes."""
    forecasts: Mapping[str, Quantiles] = field(default_factory=dict)
    """Candidate → the model's latest forecast."""

    @property
    def last_gain(self) -> float:
        """Gain of the last scored generation, in nats; 0 before the first."""
        return self.gains[-1] if self.gains else 0.0

    @property
    def worth_a_place(self) -> float:
        """Probability that a setting of the model gets a whole place, in (0, 1].

        It is the square of twice the share of settings that beat the search's choice, by its
        posterior mean under a uniform prior: 1 if half of them or more do.
        """
        return min(1.0, 2.0 * (1 + self.n_better) / (2 + self.n_own)) ** 2

    @classmethod
    def first(cls) -> "RlpState":
        """Return the state before the first thought."""
        return cls(policy=ActionPolicy.of((SILENT, 1.0 - SILENT)))

    def propensities(self, state: np.ndarray) -> np.ndarray:
        """Return the probability of each of ``ACTIONS``: the policy's, but notes at most 1 - ``SILENT``.

        Args:
            state: s_g, (N_FEATURES,).
        """
        silent = max(SILENT, float(self.policy.probabilities(state)[0]))
        return np.array([silent, 1.0 - silent], np.float64)

    def to_json(self) -> Json:
        """Return a JSON value from which ``from_json`` makes an equal state."""
        return {
            "action_policy": self.policy.to_json(),
            "value": self.value.weights.tolist(),
            "evidence": [self.evidence.log_e, self.evidence.top_log_e],
            "resolution": [self.resolution.log_e, self.resolution.top_log_e],
            "gains": [*self.gains],
            **fields_of(self, *_NUMBERS),
            "episodes": [episode.to_json() for episode in self.episodes],
            "forecasts": {name: [*q.to_json()] for name, q in self.forecasts.items()},
        }

    @classmethod
    def from_json(cls, value: Json) -> "RlpState":
        """Rebuild what ``to_json`` wrote; states of versions with forecast bins are dropped."""
        if not isinstance(value, dict) or "action_policy" not in value:
            return cls.first()
        v: dict[str, Any] = value  # as ``to_json`` wrote it
        return cls(
            policy=ActionPolicy.from_json(v["action_policy"]),
            value=ValueFunction(np.array(v["value"], np.float64)),
            evidence=EProcess(*v["evidence"]),
            resolution=EProcess(*v["resolution"]),
            gains=tuple(v["gains"]),
            episodes=tuple(Episode.from_json(episode) for episode in v["episodes"]),
            forecasts={name: Quantiles(*q) for name, q in v["forecasts"].items()},
            **{name: v[name] for name in _NUMBERS},
        )


def features(n_trials: int, *, budget_left: float, last_gain: float) -> np.ndarray:
    """Return s_g, the policy's features before it acts, (N_FEATURES,), each in [-1, 1].

    Args:
        n_trials: Number of candidates with a score.
        budget_left: Remaining share of the run, in [0, 1].
        last_gain: Mean information gain of the last scored generation, in nats.
    """
    s = np.array([1.0, budget_left, n_trials / MANY_TRIALS, last_gain])
    return np.asarray(np.clip(s, -1.0, 1.0), np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredForecast:
    """One forecast and its outcome."""

    subject: str
    """Candidate."""
    forecast: Quantiles | None
    posterior: Quantiles | None
    """``None`` if the model proposed the candidate, so that nothing is scored."""
    outcome: float
    """Score."""
    p: float | None = None
    """p(y)."""
    baseline: float | None = None
    """p-(y)."""
    gain: float | None = None
    """IG, in nats."""
    resolution: float | None = None
    """Gain over the average of the thought's forecasts, in nats."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RlpUpdate:
    """Result of learning from one generation, for tables and reports."""

    rows: tuple[ScoredForecast, ...]
    """Candidates chosen without the thought, then its proposals."""
    reward: float | None
    """r, in nats; ``None`` if nothing was scored."""
    advantage: float | None
    e_value: float | None
    resolution_e_value: float | None
    update: Update
    sigma: float

    @property
    def gains(self) -> list[float]:
        """Gains of the scored candidates, in nats."""
        return [row.gain for row in self.rows if row.gain is not None]


def score(commitment: Commitment, outcomes: CandidateOutcomes) -> tuple[ScoredForecast, ...]:
    """Return a thought's scored forecasts; its own settings have no gain.

    A candidate without an outcome, or without both forecasts, is left out.
    """
    names = [
        n for n in outcomes.observed if n in commitment.forecasts and n in commitment.posterior
    ]
    forecasts = [commitment.forecasts[name] for name in names]
    baselines = [commitment.posterior[name] for name in names]
    scores = [outcomes.observed[name] for name in names]
    pairs = [*zip(forecasts, baselines, strict=True)]
    densities = np.array([[gain.forecast_density(q, b, y) for y in scores] for q, b in pairs])
    resolutions = gain.resolutions(densities) if names else ()
    rows = []
    for i, (name, y) in enumerate(zip(names, scores, strict=True)):
        p, baseline = float(densities[i, i]), gain.baseline_density(baselines[i], y)
        rows.append(
            ScoredForecast(
                subject=name,
                forecast=forecasts[i],
                posterior=baselines[i],
                outcome=y,
                p=p,
                baseline=baseline,
                gain=gain.information_gain(p, baseline),
                resolution=float(resolutions[i]),
            )
        )
    of_settings = (
        ScoredForecast(
            subject=setting.candidate_id,
            forecast=setting.forecast,
            posterior=None,
            outcome=outcomes.proposed[setting.candidate_id],
        )
        for setting in commitment.settings
        if setting.candidate_id in outcomes.proposed
    )
    return (*rows, *of_settings)


def learn(
    state: RlpState,
    commitment: Commitment,
    outcomes: CandidateOutcomes,
    *,
    next_features: np.ndarray,
    rng: np.random.Generator,
) -> tuple[RlpState, RlpUpdate]:
    """Return the state after a generation, and the update.

    Args:
        state: State before.
        commitment: Thought and forecasts, made before the outcomes.
        outcomes: Outcomes of the candidates.
        next_features: s_g+1, (N_FEATURES,).
        rng: Random generator for the order of minibatches.
    """
    rows, thought = score(commitment, outcomes), commitment.thought
    gains = [row.gain for row in rows if row.gain is not None]
    reward = e_value = resolution_e_value = None
    episodes, moment, weight = state.episodes, state.moment, state.weight
    if gains and thought is not None:
        reward, e_value = float(np.mean(gains)), gain.e_value(gains)
        resolution_e_value = gain.e_value(
            [row.resolution or 0.0 for row in rows if row.gain is not None]
        )
        moment = advantage.second_moment(moment, reward, len(state.gains) + 1)
        weight = weight_after(weight, reward)
        episode = Episode(
            state=commitment.state,
            action=ACTIONS.index(thought.kind),
            log_old=thought.log_propensity,
            reward=reward,
        )
        episodes = (*episodes, episode)[-policies.VALUE_WINDOW :]
    sigma = advantage.sigma_of(moment)
    value, last_advantage, steps = critic(state.value, episodes, next_features, sigma)
    policy, update = policies.improve(state.policy, steps if gains else Steps.none(), rng)
    written = {} if thought is None else dict(thought.forecasts)
    written |= {s.candidate_id: s.forecast for s in commitment.settings if s.forecast is not None}
    known = {**state.forecasts, **written}
    others = outcomes.others
    proposed = () if others is None else outcomes.proposed.values()
    after = replace(
        state,
        n_own=state.n_own + len(proposed),
        n_better=state.n_better + sum(y > (others or 0.0) for y in proposed),
        policy=policy,
        value=value,
        moment=moment,
        weight=weight,
        evidence=state.evidence.after(e_value),
        resolution=state.resolution.after(resolution_e_value),
        gains=state.gains if reward is None else (*state.gains, reward),
        episodes=episodes,
        notes=thought.notes if thought is not None and thought.notes else state.notes,
        forecasts=dict([*known.items()][-MOST_SHOWN:]),
    )
    return after, RlpUpdate(
        rows=rows,
        reward=reward,
        advantage=last_advantage if gains else None,
        e_value=e_value,
        resolution_e_value=resolution_e_value,
        update=update,
        sigma=sigma,
    )


def critic(
    value: ValueFunction,
    episodes: tuple[Episode, ...],
    next_features: np.ndarray,
    sigma: float,
) -> tuple[ValueFunction, float | None, Steps]:
    """Return the next V, the advantage of the last episode, and the steps for learning."""
    if not episodes:
        return value, None, Steps.none()
    states = np.array([episode.state for episode in episodes])  # (n, N_FEATURES)
    values = value.of(states)
    raw = advantage.generalized(
        np.array([episode.reward / sigma for episode in episodes]),
        np.append(values, value.of(next_features)),
    )
    over_time = advantage.scaled(raw)
    recent = episodes[-policies.N_GENERATIONS :]
    steps = Steps(
        states[-len(recent) :],
        np.array([episode.action for episode in recent]),
        np.array([episode.log_old for episode in recent]),
        over_time[-len(recent) :],
    )
    return value.after(states, values + raw), float(over_time[-1]), steps
