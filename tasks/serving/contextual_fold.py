"""Contextual arms, learned from the stored requests and rewards.

A reward writes one row. Each process learns from new rows before it serves, so that all agree
after any kill. The state is saved every ``SAVE_EVERY`` rewards, so that a new process need not
start at the first. A process ignores a state of another version and reads all rewards again. A new
revision of the group has other arms or priors, or lacks a forgotten user, so each process starts
again. The state includes a nightly state; after reward 0 it holds nothing else.
"""

import json
import math
import threading
from collections.abc import Mapping, Sequence

from convergence_core.bandit.contextual import VERSION, ContextPosterior, ContextualArms
from convergence_core.bandit.features import Feature, request_features
from convergence_core.ports import TextEmbedder
from convergence_core.records import Json
from tasks.store.runtime.rows import Group, StoredArm
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import contextual_state, requests_after, save_contextual_state

SAVE_EVERY = 2_000
NOT_FEATURES = frozenset({"session_id"})
"""Context fields that identify the request without describing it."""


class ContextualFold:
    """Contextual arms of one group, with their posteriors. Thread-safe."""

    def __init__(self, store: RuntimeStore, group: Group) -> None:
        self._store, self._group = store, group
        self._mutex = threading.Lock()
        self._arms: ContextualArms | None = None
        self._index: dict[str, int] = {}
        self._seq = self._n_saved = 0

    def posterior(
        self,
        group: Group,
        arms: Sequence[StoredArm],
        user_id: str,
        features: Mapping[str, Feature],
    ) -> ContextPosterior:
        """Return the posterior of arms for a request, after all rewards so far.

        Args:
            group: current group.
            arms: subset of the group's arms.
            user_id: user of the request.
            features: features of the request.
        """
        with self._mutex:
            if group.revision != self._group.revision:
                self._group, self._arms = group, None
            posterior = self._up_to_date().posterior(features, user_id)
            return posterior.of([self._index[arm.arm_id] for arm in arms])

    def _up_to_date(self) -> ContextualArms:
        """Return the arms after learning from all rewards."""
        arms = self._arms or self._restarted()
        while rows := requests_after(self._store, self._group.group_id, self._seq):
            for seq, arm_id, user_id, context_json, reward in rows:
                if arm_id not in self._index:
                    arms = self._restarted()
                    break
                context = None if context_json is None else json.loads(context_json)
                arms.tell(self._index[arm_id], reward, features_of(context), user_id)
                self._seq = seq
                if arms.is_fitted and arms.n >= self._n_saved + SAVE_EVERY:
                    save_contextual_state(self._store, self._group, arms.to_json(), seq)
                    self._n_saved = arms.n
        return arms

    def _restarted(self) -> ContextualArms:
        """Start from the saved state or the priors; later arms have only their priors."""
        stored = self._store.arms(self._group.group_id)
        self._index = {arm.arm_id: k for k, arm in enumerate(stored)}
        means, weights = _priors(stored)
        text, seq = contextual_state(self._store, self._group.group_id)
        state = {} if text is None else json.loads(text)
        if state.get("version") == VERSION:
            self._arms, self._seq = ContextualArms.from_json(state, means, weights), seq
        else:
            self._arms, self._seq = ContextualArms(means, weights), 0
        self._n_saved = self._arms.n
        return self._arms


def features_of(
    context: Mapping[str, Json] | None,
    text: str | None = None,
    embedder: TextEmbedder | None = None,
) -> dict[str, Feature]:
    """Return the features of a request.

    Raises:
        ValueError: a feature is not a finite number, string or boolean.
    """
    kept = {name: v for name, v in (context or {}).items() if name not in NOT_FEATURES}
    return request_features(kept, text, embedder)


def night_state(
    arms: Sequence[StoredArm], night: Mapping[str, Json], names: Sequence[str]
) -> dict[str, Json]:
    """Return a state of contextual arms with a nightly state and no reward.

    Args:
        arms: all arms of the group.
        night: state of the arms in ``names``, learned from a run's cases.
        names: ids of those arms.
    """
    nan, ones = [math.nan] * len(names), [1.0] * len(names)
    row_of = {name: row for row, name in enumerate(names)}
    learned = ContextualArms.from_json(night, nan, ones)
    placed = learned.placed([row_of.get(arm.arm_id) for arm in arms])
    return ContextualArms(*_priors(arms), placed).to_json()


def _priors(arms: Sequence[StoredArm]) -> tuple[list[float], list[float]]:
    means = [math.nan if arm.prior_mean is None else arm.prior_mean for arm in arms]
    return means, [arm.base_alpha + arm.base_beta - 1.0 for arm in arms]
