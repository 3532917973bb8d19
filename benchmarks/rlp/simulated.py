"""Good, useless and wrong thinkers without a model, and a learner that always trusts them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

from convergence_core.config.optimization import RlpConfig
from convergence_core.records import Params, ParamValue
from convergence_core.rlp.commitments import ProposedSetting, Thought
from convergence_core.rlp.quantiles import Quantiles, Z
from convergence_core.search.sampler import Advice
from convergence_core.search.study import Study
from convergence_core.search.study_state import StudyState
from convergence_core.space import Choice, Space
from tasks.rlp.learner import RlpLearner
from tasks.rlp.prompts import ThoughtRequest

Kind: TypeAlias = Literal["good", "useless", "wrong"]
Way: TypeAlias = Literal["plain", "trust", "rlp"]
FORECAST_SD = 0.1
REACH = 0.15
"""Maximum distance of a proposed number from the assumed optimum, as a share of its range."""
SLOPES: Mapping[Kind, tuple[float, float]] = {
    "good": (1.0, 0.05),
    "useless": (0.0, 0.14),
    "wrong": (-1.0, 0.05),
}


class Simulated:
    """Simulated thinker of a kind: forecasts and proposes without a model."""

    def __init__(
        self, kind: Kind, space: Space, value: Callable[[Params], float], seed: int
    ) -> None:
        """Initialize the thinker.

        Args:
            kind: Quality of its thoughts.
            space: Space of the candidates.
            value: Maps parameters to their expected score.
            seed: Seed of its errors.
        """
        self.model = None
        self.settings = RlpConfig()
        self._slope, self._spread = SLOPES[kind]
        self._kind, self._value = kind, value
        self._rng = np.random.default_rng([seed, 77])
        ranked = sorted((space.sample(self._rng) for _ in range(5_000)), key=value)
        self._about = ranked[-1] if kind == "good" else ranked[0]

    async def write(self, draft: Thought, request: ThoughtRequest, *_: Any) -> Thought:
        """Return a thought with forecasts and settings."""
        settings = {}
        for _number in range(request.n_settings):
            candidate = request.space.candidate(self._near(request.space), "rlp")
            settings[candidate.candidate_id] = ProposedSetting(
                candidate_id=candidate.candidate_id,
                params=candidate.params,
                forecast=self._forecast(candidate.params),
            )
        return replace(
            draft,
            text=draft.thought_id,
            sha256="-",
            forecasts={name: self._forecast(p) for name, p in request.reserved.items()},
            settings=tuple(settings.values()),
            committed_us=1,
        )

    def _forecast(self, params: Params) -> Quantiles:
        score = self._slope * (self._value(params) - 0.5)
        score += self._spread * self._rng.standard_normal()
        mean = 0.5 + float(np.clip(score, -0.48, 0.48))
        return Quantiles.of([mean + z * FORECAST_SD for z in (-Z, 0.0, Z)])

    def _near(self, space: Space) -> dict[str, ParamValue]:
        point = space.sample(self._rng)
        if self._kind == "useless":
            return point
        for name, about in self._about.items():
            parameter = space.parameters[name]
            if isinstance(parameter, Choice):
                point[name] = about
            else:
                unit = parameter.to_unit(about) + REACH * (2 * self._rng.random() - 1)
                point[name] = parameter.from_unit(min(1.0, max(0.0, unit)))
        return point


class Inline:
    """Session that runs the simulated thinker synchronously."""

    def run(self, work: Callable[[Any], Any]) -> Any:
        """Run a coroutine that never waits."""
        coroutine = work(None)
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value
        raise RuntimeError("simulated work must not wait")


class Trusting(RlpLearner):
    """Learner that always trusts every thought: the baseline for RLP."""

    def advise(self, study: Study, state: StudyState, advice: Advice) -> Advice:
        """Return the expert with the full weight and no reserved trials."""
        self.state = replace(self.state, weight=1.0)
        return replace(super().advise(study, state, advice), reserves=False)
