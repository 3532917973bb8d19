"""Thinkers that are good, useless or adversarial, without a model; and one that is always believed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.special import ndtr

from convergence_core.config.optimization import RlpConfig
from convergence_core.records import Candidate, Params
from convergence_core.rlp.bins import RewardBins, normalized
from convergence_core.rlp.commitments import Thought
from convergence_core.rlp.history import TrialHistory
from convergence_core.rlp.regions import Region
from convergence_core.search.sampler import Advice
from convergence_core.search.study import Study
from convergence_core.search.study_state import StudyState
from convergence_core.space import Choice, Space
from tasks.rlp.channel_probe import ChannelProbe
from tasks.rlp.learner import RlpLearner
from tasks.rlp.thought_writer import Predictions

Kind: TypeAlias = Literal["good", "useless", "adversarial"]
Way: TypeAlias = Literal["plain", "trust", "rlp"]
FORECAST_SD = 0.1
SLOPES: Mapping[Kind, tuple[float, float]] = {
    "good": (1.0, 0.05),
    "useless": (0.0, 0.14),
    "adversarial": (-1.0, 0.05),
}


class _Channel:
    """A channel whose answers are simulated."""

    estimator = "echo"


class Simulated:
    """Thinks and predicts as its kind does, without a model."""

    def __init__(
        self,
        kind: Kind,
        space: Space,
        value: Callable[[Params], float],
        seed: int,
    ) -> None:
        """Prepare to think.

        Args:
            kind: what it is worth.
            space: of the candidates.
            value: expected reward of a candidate.
            seed: of what it errs in.
        """
        self.model = None
        self.settings = RlpConfig()
        self.space = space
        self._slope, self._spread = SLOPES[kind]
        self._kind, self._value = kind, value
        self._rng = np.random.default_rng([seed, 77])
        ranked = sorted((space.sample(self._rng) for _ in range(5_000)), key=value)
        self._about = ranked[-1] if kind == "good" else ranked[0]

    async def probe_channels(self, _asker: Any) -> ChannelProbe:
        """Return a channel that needs no server."""
        return ChannelProbe(channel=_Channel(), refused={})  # type: ignore[arg-type]  # nobody asks it

    async def write(
        self, drawn: Sequence[Thought], _history: TrialHistory, _space: Space, **_of: Any
    ) -> tuple[Thought, ...]:
        """Return thoughts without content; each proposes a region."""
        knows = self._kind in ("good", "adversarial")
        about = self._about if knows else self.space.sample(self._rng)
        return tuple(
            replace(
                one,
                text=one.thought_id,
                sha256="-",
                regions=(self._region(about),) if one.action else (),
                committed_us=one.generation + 1,
            )
            for one in drawn
        )

    def _region(self, about: Params) -> Region:
        intervals, values = {}, {}
        for name in about:
            parameter = self.space.parameters[name]
            if isinstance(parameter, Choice):
                values[name] = (about[name],)
            else:
                unit = parameter.to_unit(about[name])
                intervals[name] = (max(0.0, unit - 0.1), min(1.0, unit + 0.1))
        return Region(intervals, values)

    async def predict(
        self, _channel: Any, candidates: Sequence[Candidate], thoughts: Sequence[Thought],
        _history: TrialHistory, _space: Space, *, points_of: Mapping[str, Sequence[Candidate]],
        bins: RewardBins, **_of: Any,
    ) -> Predictions:  # fmt: skip
        """Return forecasts of the thinker's kind."""

        def mean(candidate: Candidate) -> float:
            said = self._slope * (self._value(candidate.params) - 0.5)
            said += self._spread * self._rng.standard_normal()
            return 0.5 + float(np.clip(said, -0.48, 0.48))

        def forecasts(asked: Sequence[Candidate]) -> dict[str, np.ndarray]:
            return {c.candidate_id: binned_normal(mean(c), FORECAST_SD, bins) for c in asked}

        return Predictions(
            no_thought={c.candidate_id: binned_normal(0.5, 0.3, bins) for c in candidates},
            forecasts={t.thought_id: forecasts(candidates) for t in thoughts},
            own={name: forecasts(points) for name, points in points_of.items()},
            ended_us=1,
        )


def binned_normal(mean: float, sd: float, bins: RewardBins) -> np.ndarray:
    """Return the bins of a normal prediction, (N_BINS,); what lies outside goes to the ends."""
    below = ndtr((bins.edges[1:-1] - mean) / sd)
    return normalized(np.diff(np.concatenate([[0.0], below, [1.0]])))


class Inline:
    """A session that runs the simulated thinker's work at once."""

    def run(self, work: Callable[[Any], Any]) -> Any:
        """Drive a coroutine that never waits."""
        coroutine = work(None)
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value
        raise RuntimeError("simulated work must not wait")


class Trusting(RlpLearner):
    """Believes every thought, whatever it predicted: what RLP is measured against."""

    def advise(self, study: Study, state: StudyState, advice: Advice) -> Advice:
        """Return the experts with all of the weight, and nothing reserved."""
        advice = super().advise(study, state, advice)
        n = len(advice.experts)
        return Advice(experts=tuple(replace(e, weight=1.0 / n) for e in advice.experts))
