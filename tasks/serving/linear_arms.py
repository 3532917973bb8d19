"""Contextual arms, learned from the stored requests and rewards.

A reward writes one row; each process learns from the rows that are new to it before it serves, so that
all know the same after any kill. The state is saved every ``SAVE_EVERY`` rewards, so that a new
process need not begin at the first.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convergence_core.bandit import Encoder, LinearArms, LinearLearner
from convergence_core.bandit.propensities import Floats, of_gaussian
from convergence_core.records import Json
from tasks.store.runtime.rows import StoredArm
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import contextual_state, requests_after, save_contextual_state

SAVE_EVERY = 2_000
NOT_FEATURES = frozenset({"session_id"})
"""Members of a context that identify the request and say nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContextPosterior:
    """Posterior of each arm's mean reward for one request, (n_arms,) each."""

    means: Floats
    sds: Floats
    propensities: Floats
    """Of being drawn highest."""


class ContextualArms:
    """Contextual arms of one group, with their posteriors. Thread-safe."""

    def __init__(
        self, store: RuntimeStore, group_id: int, agent_type: str, encoder: Encoder
    ) -> None:
        self._store, self._group_id, self._agent_type = store, group_id, agent_type
        self._encoder = encoder
        self._mutex = threading.Lock()
        self._learner: LinearLearner | None = None
        self._index: dict[str, int] = {}
        self._seq = self._n_saved = 0

    def posterior(
        self, arms: Sequence[StoredArm], user_id: str, context: Mapping[str, Json] | None
    ) -> ContextPosterior:
        """Return the posterior of these arms for a request, after all rewards so far.

        Raises:
            ValueError: a feature is no finite number, text or boolean.
        """
        x = self._encoded(user_id, context)
        with self._mutex:
            learner = self._up_to_date()
            index = [self._index[arm.arm_id] for arm in arms]
            means, sds = learner.arms.moments(x)
        means, sds = means[index], sds[index]
        return ContextPosterior(means=means, sds=sds, propensities=of_gaussian(means, sds))

    def _up_to_date(self) -> LinearLearner:
        """Return the learner after all rewards."""
        if self._learner is None or len(self._index) < len(self._store.arms(self._group_id)):
            self._restart()
        while rows := requests_after(self._store, self._group_id, self._seq):
            for seq, arm_id, user_id, context_json, reward in rows:
                if arm_id not in self._index:
                    self._restart()
                    break
                assert self._learner is not None  # noqa: S101 - begun above
                context = None if context_json is None else json.loads(context_json)
                x = self._encoded(user_id, context)
                self._learner.tell(self._index[arm_id], x, reward)
                self._seq = seq
        assert self._learner is not None  # noqa: S101 - begun above
        n = float(self._learner.arms.n.sum())
        if n >= self._n_saved + SAVE_EVERY:
            learned = _to_json(self._learner.arms, self._index)
            save_contextual_state(self._store, self._group_id, learned, self._seq)
            self._n_saved = int(n)
        return self._learner

    def _restart(self) -> None:
        """Begin with the saved state, or with the priors; arms that came later have theirs alone."""
        stored = self._store.arms(self._group_id)
        prior = LinearArms.begin(
            [0.5 if arm.prior_mean is None else arm.prior_mean for arm in stored],
            self._encoder.n_features,
            prior_weights=[arm.base_alpha + arm.base_beta - 1.0 for arm in stored],
        )
        text, seq = contextual_state(self._store, self._group_id)
        self._index = {arm.arm_id: k for k, arm in enumerate(stored)}
        self._seq = 0
        if text is not None:
            posterior = _with_known(prior, json.loads(text), self._index)
            if posterior is not None:
                prior, self._seq = posterior, seq
        self._learner = LinearLearner(prior)
        self._n_saved = int(prior.n.sum())

    def _encoded(self, user_id: str, context: Mapping[str, Json] | None) -> Floats:
        features: dict[str, float | int | bool | str | None] = {}
        for name, value in (context or {}).items():
            if name in NOT_FEATURES:
                continue
            if isinstance(value, list | dict):
                raise ValueError(
                    f"context.{name} must be a number, text or boolean to be a feature"
                )
            features[name] = value
        return self._encoder.encode(features, user_id=user_id, agent_type=self._agent_type)


def _to_json(arms: LinearArms, index: Mapping[str, int]) -> dict[str, Json]:
    """Return a JSON value of version 1: by arm, its covariance, ``b`` and number."""
    return {
        "version": 1,
        "arms": {
            name: [arms.covariance[k].ravel().tolist(), arms.b[k].tolist(), float(arms.n[k])]
            for name, k in index.items()
        },
    }


def _with_known(
    prior: LinearArms, value: Mapping[str, Json], index: Mapping[str, int]
) -> LinearArms | None:
    """Return arms with what is saved of them; ``None`` if it is of another version or encoder."""
    known = value.get("arms")
    if value.get("version") != 1 or not isinstance(known, dict):
        return None
    covariance, b, weights, n = (
        array.copy() for array in (prior.covariance, prior.b, prior.weights, prior.n)
    )
    for name, saved in known.items():
        assert isinstance(saved, list)  # noqa: S101 - of this version
        values = np.array(saved[1], dtype=np.float64)
        if values.shape != b.shape[1:] or name not in index:
            return None
        k = index[name]
        covariance[k] = np.array(saved[0], dtype=np.float64).reshape(covariance.shape[1:])
        b[k], n[k] = values, float(str(saved[2]))
        weights[k] = covariance[k] @ values
    return replace(prior, covariance=covariance, b=b, weights=weights, n=n)
