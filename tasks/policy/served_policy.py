"""Policy that chooses changes of prompts and learns from their outcomes.

Decisions wait in memory until their outcome is reported. A report is durable before it is
acknowledged. An update learns from all complete steps of the current version while decisions
continue with the old weights; only one runs at a time. Steps of older versions are stored but
never learned from.
"""

import hashlib
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from typing import Any, Final

import numpy as np

from convergence_core.errors import (
    PolicyBusyError,
    PolicyCheckpointError,
    PolicyDecisionNotFoundError,
    PolicyRequestError,
)
from convergence_core.policy.checkpoint import pack, unpack
from convergence_core.policy.experience_buffer import ExperienceBuffer, PolicyDecision, StepOutcome
from convergence_core.policy.learner import PPOState, UpdateStatistics, improve
from convergence_core.policy.prompt_state import PROMPT_ACTIONS, PromptEpisode
from convergence_core.policy.rollout import Offer, PolicyChoice, Rollout, choose, values_of
from convergence_core.records import fields_of
from tasks.policy.records import (
    OFF_POLICY,
    ChosenAction,
    ExperienceReceipt,
    ExperienceReport,
    PolicyQuestion,
    PolicySettings,
    ReceiptStatus,
)
from tasks.store.database import Closing
from tasks.store.policy.checkpoint_files import CheckpointFiles
from tasks.store.policy.experience_store import (
    ExperienceStore,
    PolicyExperience,
    PolicyVersionRecord,
    VersionKind,
)

MOST_PENDING: Final = 10_000
"""Maximum decisions that wait for their outcome; beyond it, the oldest are dropped."""
CHECK_EVERY: Final = 64
"""Number of reports between counts of the ready steps."""


class ServedPolicy(Closing):
    """Policy of one store. Thread-safe; blocks."""

    def __init__(self, store: ExperienceStore, settings: PolicySettings | None = None) -> None:
        """Continue the store's policy, or start one.

        Args:
            store: Store of experiences and versions; the caller closes it.
            settings: Settings of the policy.

        Raises:
            PolicyBusyError: another process serves it.
            PolicyCheckpointError: the store's policy has another embedding or dimension, or its
                file is missing or damaged.
        """
        self.settings = settings or PolicySettings()
        self.identity = (self.settings.embedding, PROMPT_ACTIONS)
        self._store = store
        self._files = CheckpointFiles(store.root)
        self._stack = ExitStack()
        self._stack.enter_context(self._files.alone())
        self._lock, self._taking, self._updating = (
            threading.Lock(), threading.Lock(), threading.Lock()
        )  # fmt: skip
        self._pending: OrderedDict[str, tuple[PolicyDecision, int]] = OrderedDict()
        self._claimed: set[str] = set()
        self._n_reported = 0
        self._last: UpdateStatistics | None = None
        try:
            self._learning_rng = np.random.default_rng([self.settings.seed, 0])
            self._state = self._opened()
            self._buffer = self._rebuilt()
        except BaseException:
            self._stack.close()
            raise
        # The count changes the stream after a restart: earlier decisions used the same seed.
        self._rng = np.random.default_rng(
            [self.settings.seed, 1, self._state.version, store.count()]
        )

    @property
    def version(self) -> int:
        """Version that chooses now."""
        return self._state.version

    def decide(
        self,
        question: PolicyQuestion,
        *,
        episode_id: str | None = None,
        deterministic: bool = False,
    ) -> ChosenAction:
        """Choose an action.

        Args:
            question: Prompt and episode.
            episode_id: Id of the episode to continue; ``None`` starts a new one.
            deterministic: Whether to take the most likely action, from which nothing is learned.

        Raises:
            PolicyRequestError: the embedding is missing or invalid, or this step of the episode
                already has a decision.
        """
        offer = self._offer(question)
        episode_id, step = episode_id or uuid.uuid4().hex, len(question.history)
        with self._lock:
            state = self._state
            chosen = choose(state.networks, offer, None if deterministic else self._rng)
            decision = _decision(offer, chosen, state.version, episode_id, step)
            if not deterministic:
                self._keep(decision)
        return ChosenAction(
            decision_id=None if deterministic else decision.decision_id,
            episode_id=episode_id,
            step=step,
            action=PROMPT_ACTIONS[decision.action],
            log_prob=decision.log_prob,
            value=decision.value,
            mask=tuple(offer.legal[0].tolist()),
            probabilities=tuple(float(p) for p in chosen.probabilities[0]),
            policy_version=state.version,
        )

    def claim(self, question: PolicyQuestion, action: str) -> PolicyDecision:
        """Return the latest waiting decision for this state and action, each only once.

        If there is none, the action's probability is unknown, so PPO has no ratio for it: the step
        is stored as off-policy data, and no update learns from it.

        Raises:
            PolicyRequestError: the embedding is missing or invalid.
        """
        offer, number = self._offer(question), PROMPT_ACTIONS.index(action)
        with self._lock:
            self._claimed &= self._pending.keys()
            for decision, _ in reversed(self._pending.values()):
                if (
                    decision.action == number
                    and decision.decision_id not in self._claimed
                    and np.array_equal(decision.observation, offer.observations[0])
                ):
                    break
            else:
                chosen = choose(self._state.networks, offer, number)
                decision = replace(
                    _decision(offer, chosen, OFF_POLICY, uuid.uuid4().hex, 0), log_prob=0.0
                )
                self._pending[decision.decision_id] = decision, self._store.now_us()
            self._claimed.add(decision.decision_id)
        return decision

    def take(self, report: ExperienceReport) -> ExperienceReceipt:
        """Store the outcome of a decision, durably. A report may be repeated.

        Raises:
            PolicyRequestError: the report breaks a rule.
            PolicyDecisionNotFoundError: no such decision waits.
            StoreWriteError: nothing is stored; report it again.
        """
        with self._taking:
            return self._received(report)

    @property
    def is_update_due(self) -> bool:
        """Whether ``buffer_size`` steps are ready; checked once per ``CHECK_EVERY`` reports."""
        with self._lock:
            if self._n_reported < CHECK_EVERY:
                return False
            self._n_reported = 0
            return self._buffer.n_ready >= self.settings.ppo.buffer_size

    def update(self) -> UpdateStatistics | None:
        """Learn from the ready steps; ``None`` if they are fewer than a minibatch.

        Raises:
            PolicyBusyError: another update is running.
            StoreWriteError: the new version could not be written; the old one continues.
        """
        with self._alone():
            with self._lock:
                rollout: Rollout | None = self._buffer.rollout(self.settings.ppo)
            if rollout is None:
                return None
            after, statistics = improve(
                self._state, rollout, self.settings.ppo, self._learning_rng
            )
            self._change(after, "updated", statistics=statistics)
            return statistics

    def save(self, name: str) -> int:
        """Save the policy under a name, durably; return its version.

        Raises:
            PolicyRequestError: the name is not a plain word.
        """
        with self._alone():
            self._files.save(name, self._packed(self._state))
            return self._state.version

    def load(self, name: str) -> int:
        """Continue with a saved policy as a new version, and return that version.

        Steps of the previous version are stored but not learned from.

        Raises:
            PolicyRequestError: the name is not a plain word.
            PolicyCheckpointError: no policy has that name, or it is damaged, or from another
                system.
            PolicyBusyError: an update is running.
        """
        with self._alone():
            state = self._unpacked(self._files.load(name))
            state = replace(state, version=self._state.version + 1)
            self._change(state, "loaded", checkpoint=name)
            return state.version

    def stats(self) -> dict[str, Any]:
        """Return statistics of the policy by name."""
        with self._lock:
            ready, pending, state = self._buffer.n_ready, len(self._pending), self._state
        return {
            "policy_version": state.version,
            "n_steps_learned": state.n_steps,
            "n_experiences": self._store.count(),
            "n_ready": ready,
            "n_pending": pending,
            "is_updating": self._updating.locked(),
            **fields_of(self.settings, "embedding", "embedding_dim", "max_steps"),
            "actions": list(PROMPT_ACTIONS),
            "checkpoints": self._files.names(),
            "config": asdict(self.settings.ppo),
            "last_update": None if self._last is None else asdict(self._last),
        }

    def close(self) -> None:
        """Wait for a running update, then let another process serve; safe to call twice."""
        with self._updating:
            self._stack.close()

    # -- opening

    def _opened(self) -> PPOState:
        latest = self._store.latest_version()
        if latest is None:
            state = PPOState.begin(self.settings.ppo, self._learning_rng)
            self._written(state, "begun")
            return state
        data = self._files.read_version(latest.version)
        if hashlib.sha256(data).hexdigest() != latest.sha256:
            raise PolicyCheckpointError(
                f"the file of version {latest.version} must be as it was written, but it was changed. "
                "Restore it from a backup"
            )
        return self._unpacked(data)

    def _rebuilt(self) -> ExperienceBuffer:
        buffer = ExperienceBuffer(self._state.version)
        experiences = sorted(
            self._store.of_version(self._state.version),
            key=lambda experience: (experience.decision.episode_id, experience.decision.step),
        )
        for experience in experiences:
            buffer.decide(experience.decision)
        for experience in experiences:
            buffer.report(experience.decision.decision_id, experience.outcome)
        return buffer

    def _unpacked(self, data: bytes) -> PPOState:
        """Return the state of a file, and continue its generator."""
        state, config, generator = unpack(data, self.identity)
        ppo = self.settings.ppo
        for name in ("input_dim", "hidden_dim"):
            if getattr(config, name) != getattr(ppo, name):
                raise PolicyCheckpointError(
                    f"a checkpoint's `{name}` must be {getattr(ppo, name)}, but got {getattr(config, name)}. "
                    "Train again, or serve with that one"
                )
        self._learning_rng.bit_generator.state = generator
        return state

    # -- decisions and reports

    def _offer(self, question: PolicyQuestion) -> Offer:
        if question.embedding is None:
            raise PolicyRequestError("`embedding` or `prompt` must be given")
        n = len(question.embedding)
        if n != self.settings.embedding_dim:
            raise PolicyRequestError(
                f"`embedding` must have {self.settings.embedding_dim} numbers, but got {n}"
            )
        episode = PromptEpisode(
            **fields_of(question, "history", "category", "score"),
            max_steps=self.settings.max_steps,
        )
        observation = episode.observation(question.embedding)
        legal = episode.legal(question.excluded)
        return Offer(observations=observation[None], legal=legal[None])

    def _keep(self, decision: PolicyDecision) -> None:
        self._buffer.decide(decision)
        self._pending[decision.decision_id] = decision, self._store.now_us()
        if len(self._pending) > MOST_PENDING:
            name, (oldest, _) = self._pending.popitem(last=False)
            if oldest.version == self._buffer.version:
                self._buffer.discard(name)

    def _received(self, report: ExperienceReport) -> ExperienceReceipt:
        """Check a report and store it, unless it is a duplicate."""
        with self._lock:
            pending, state = self._pending.get(report.decision_id), self._state
        if pending is None:
            return self._repeated(report)
        decision, decided_us = pending
        _check_place(report, decision)
        outcome = StepOutcome(
            **fields_of(report, "reward", "terminated", "truncated"),
            final_value=self._final_value(report, state),
        )
        with self._lock:
            is_current = decision.version == self._buffer.version
            if is_current:
                self._buffer.report(report.decision_id, outcome)
        self._store.add(
            PolicyExperience(decision=decision, outcome=outcome, decided_us=decided_us)
        )
        with self._lock:
            self._pending.pop(report.decision_id, None)
            self._n_reported += 1
        other: ReceiptStatus = "off_policy" if decision.version == OFF_POLICY else "archived"
        return _receipt(decision, "stored" if is_current else other)

    def _repeated(self, report: ExperienceReport) -> ExperienceReceipt:
        """Check a report of a decision that does not wait: its outcome must be stored already."""
        known = self._store.experience(report.decision_id)
        if known is None:
            raise PolicyDecisionNotFoundError(
                f"`decision_id` must be of a decision that waits, but got {report.decision_id!r}. "
                "Ask for a new one: decisions are forgotten when the service ends, or when "
                f"{MOST_PENDING:,} newer ones wait"
            )
        _check_place(report, known.decision)
        reported, stored = (
            tuple(fields_of(each, "reward", "terminated", "truncated").values())
            for each in (report, known.outcome)
        )
        if reported != stored:
            raise PolicyRequestError(
                f"`decision_id` {report.decision_id!r} has another outcome already: reward {stored[0]}, "
                f"terminated {stored[1]}, truncated {stored[2]}; an outcome is reported once, or again "
                "as it was"
            )
        return _receipt(known.decision, "duplicate")

    def _final_value(self, report: ExperienceReport, state: PPOState) -> float:
        if report.final is None or not report.truncated:
            return 0.0
        return float(values_of(state.networks, self._offer(report.final).observations)[0])

    # -- versions

    def _change(
        self,
        state: PPOState,
        kind: VersionKind,
        checkpoint: str | None = None,
        statistics: UpdateStatistics | None = None,
    ) -> None:
        self._written(state, kind, checkpoint, statistics)
        with self._lock:
            self._state = state
            self._buffer.advance(state.version)
            if statistics is not None:
                self._last = statistics

    def _written(
        self,
        state: PPOState,
        kind: VersionKind,
        checkpoint: str | None = None,
        statistics: UpdateStatistics | None = None,
    ) -> None:
        data = self._packed(state)
        self._files.write_version(state.version, data)
        self._store.record_version(
            PolicyVersionRecord(
                version=state.version,
                kind=kind,
                checkpoint=checkpoint,
                sha256=hashlib.sha256(data).hexdigest(),
                n_steps=state.n_steps,
                statistics={} if statistics is None else asdict(statistics),
                created_us=self._store.now_us(),
            )
        )

    def _packed(self, state: PPOState) -> bytes:
        generator = dict(self._learning_rng.bit_generator.state)
        return pack(state, self.settings.ppo, self.identity, generator)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Exclude other updates, without waiting for them."""
        if not self._updating.acquire(blocking=False):
            raise PolicyBusyError("an update is running. Try again when it has ended")
        try:
            yield
        finally:
            self._updating.release()


def _decision(
    offer: Offer, chosen: PolicyChoice, version: int, episode_id: str, step: int
) -> PolicyDecision:
    return PolicyDecision(
        decision_id=uuid.uuid4().hex,
        episode_id=episode_id,
        step=step,
        version=version,
        observation=offer.observations[0],
        legal=offer.legal[0],
        action=int(chosen.actions[0]),
        log_prob=float(chosen.log_probs[0]),
        value=float(chosen.values[0]),
    )


def _check_place(report: ExperienceReport, decision: PolicyDecision) -> None:
    for name in ("episode_id", "step"):
        if getattr(report, name) != getattr(decision, name):
            raise PolicyRequestError(
                f"`{name}` must be that of the decision, {getattr(decision, name)!r}, but got "
                f"{getattr(report, name)!r}"
            )


def _receipt(decision: PolicyDecision, status: ReceiptStatus) -> ExperienceReceipt:
    return ExperienceReceipt(
        decision_id=decision.decision_id, status=status, policy_version=decision.version
    )
