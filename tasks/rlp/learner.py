"""RLP as a learner: thoughts, experts in the draws, information gain.

The order is the guarantee: thoughts are durable, then what they predict of candidates chosen
without them, then the rest of the generation is chosen, and only then is anything evaluated. A
resumed run draws the same strategies, reads the same answers from the journal and comes to the same
commitment; an outcome older than the commitment counts for nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np

from convergence_core.posterior import SpaceModel
from convergence_core.records import Candidate, Params, Trial, canonical_json, sha256_hex
from convergence_core.result.number_text import plural
from convergence_core.rlp.bins import RewardBins, relative_entropy, tempered
from convergence_core.rlp.commitments import Commitment, Thought
from convergence_core.rlp.exemplars import exemplars, worth_rescoring
from convergence_core.rlp.history import features
from convergence_core.rlp.learner import RlpState, learn
from convergence_core.rlp.outcomes import outcomes_of
from convergence_core.rlp.regions import draw_points
from convergence_core.rlp.replay import Replay
from convergence_core.rlp.rows import RlpStep, step_tables
from convergence_core.rlp.statistical import easier_cases, predictive
from convergence_core.rlp.strategies import NO_THOUGHT
from convergence_core.search.learner import LearnerStep
from convergence_core.search.racing.cell_allocation import MAX_PROPOSALS
from convergence_core.search.sampler import Advice, Expert
from convergence_core.search.study import PlannedGeneration, Study
from convergence_core.search.study_state import StudyState
from convergence_core.space import Space
from tasks.rlp.channel_probe import ChannelProbe
from tasks.rlp.learner_calls import LearnerCalls
from tasks.rlp.thought_writer import Predictions, ThoughtWriter
from tasks.secrets.process_redaction import redacted_text

RLP: Final = "rlp"
N_REGION_POINTS: Final = 4
"""Points of a thought's regions that it predicts too; they enter the draws and earn nothing."""
N_RESCORED: Final = 2
"""Old thoughts that are predicted with again in each generation, so that they gather outcomes."""
MOST_SHOWN: Final = 160
"""Characters of a thought on the console."""


@dataclass(slots=True, eq=False, kw_only=True)
class RlpLearner:
    """See ``convergence_core.search.learner``."""

    name = RLP
    variants: ClassVar[Mapping[str, Sequence[str]]] = {}
    vectors: ClassVar[Mapping[str, str]] = {}
    run_id: str
    seed: int
    """Of the run."""
    writer: ThoughtWriter
    calls: LearnerCalls
    state: RlpState
    """After the last committed generation."""
    replay: Replay
    """What earlier generations predicted."""
    on_commit: Callable[[Commitment], None] | None = None
    """Makes a commitment durable, before anything is chosen by it."""
    _commitment: Commitment | None = field(default=None, init=False)
    _points_of: dict[str, list[tuple[Params, np.ndarray]]] = field(
        default_factory=dict, init=False
    )
    _reserved: dict[str, Params] = field(default_factory=dict, init=False)
    _step: RlpStep | None = field(default=None, init=False)

    @property
    def disabled_reason(self) -> str | None:
        """Why no thoughts are written in this run; ``None`` if they are."""
        return self.calls.disabled_reason

    def is_due(self, state: StudyState) -> bool:  # noqa: ARG002 - of the protocol
        """Whether thoughts are written in this run."""
        return self.disabled_reason is None

    def commitment(self, generation: int) -> Commitment | None:
        """Return what was committed for a generation; ``None``: nothing."""
        commitment = self._commitment
        return (
            commitment if commitment is not None and commitment.generation == generation else None
        )

    # -- thoughts and predictions

    def think(self, study: Study, state: StudyState, advice: Advice) -> int:
        """Write the thoughts of the next generation, then predict candidates chosen without them.

        The first generation has nothing to think about.
        """
        generation = state.next_generation
        if self.disabled_reason is not None or not len(self.state.history.as_of(generation)):
            return 0
        probe = self.calls.probed(self.writer.probe_channels, generation, "ladder")
        if probe.channel is None:
            return 0
        written = self._write(study, generation)
        plan = study.ask(
            state, Advice(reserves=True, preferred=advice.preferred, written=advice.written)
        ).plan
        exogenous_ids = {cell.candidate_id for cell in plan.exogenous}
        reserved = [
            a.candidate for a in plan.assignments if a.candidate.candidate_id in exogenous_ids
        ]
        most = min(-(-len(plan.assignments) // 2), self.writer.settings.n_predicted)
        self._commitment = self._predict(study, state, written, probe, reserved[:most])
        return sum(thought.is_written for thought in written.thoughts)

    def _write(self, study: Study, generation: int) -> Commitment:
        """Return the commitment of the thoughts alone; they are durable when this returns."""
        history = self.state.history.as_of(generation)
        s = self._features(study, generation)
        rng = self._rng(generation, "draw")
        actions = self.state.policy.draw(s, self.writer.settings.n_thoughts, rng)
        logs = self.state.policy.log_probabilities(s)
        names = (NO_THOUGHT, *self.state.strategies)
        drawn = [
            Thought(
                thought_id=sha256_hex(canonical_json([self.run_id, generation, "thought", index]))[
                    :24
                ],
                generation=generation,
                index=index,
                action=action,
                strategy=names[action],
                log_old=float(logs[action]),
            )
            for index, action in enumerate(actions)
        ]
        shown = exemplars(self.replay)
        thoughts = self.calls.run(
            lambda asker: self.writer.write(
                drawn, history, study.space, exemplars=shown, asker=asker
            ),
            generation,
        )
        return Commitment(
            generation=generation,
            state=s,
            thoughts=thoughts,
            bins=RewardBins.of([trial.reward for trial in history.trials]),
            committed_us=max((t.committed_us or 0 for t in thoughts), default=0) or None,
        )

    def _predict(
        self,
        study: Study,
        state: StudyState,
        written: Commitment,
        probe: ChannelProbe,
        candidates: Sequence[Candidate],
    ) -> Commitment:
        """Return the commitment with all predictions of candidates chosen without a thought."""
        channel, generation = probe.channel, state.next_generation
        assert channel is not None  # noqa: S101 - its caller has looked
        texts = [t for t in written.thoughts if t.is_written]
        points = self._region_points(study.space, generation, texts)
        old = [t for t in worth_rescoring(self.replay, most=N_RESCORED) if t.text and texts]
        predictions = Predictions()
        if texts and candidates:
            predictions = self.calls.run(
                lambda asker: self.writer.predict(
                    channel,
                    candidates,
                    [*texts, *old],
                    self.state.history.as_of(generation),
                    study.space,
                    points_of=points,
                    bins=written.bins,
                    asker=asker,
                ),
                generation,
            )
        model = SpaceModel(space=study.space, deterministic=study.schedule.deterministic)
        fitted = model.warm(state.search.memory).fit(
            state.search.archive, case_ids=study.case_order
        )
        statistical = predictive(fitted, candidates, written.bins)
        durable = [at for at in (written.committed_us, predictions.ended_us) if at is not None]
        known = {t.thought_id for t in texts}
        commitment = replace(
            written,
            estimator=channel.estimator,
            forecasts={name: f for name, f in predictions.forecasts.items() if name in known},
            rescored={name: f for name, f in predictions.forecasts.items() if name not in known},
            no_thought=predictions.no_thought,
            statistical={c.candidate_id: p for c, p in zip(candidates, statistical, strict=True)},
            easier=easier_cases(fitted),
            subjects=tuple(predictions.no_thought),
            censored=predictions.censored,
            committed_us=max(durable, default=None),
            notes=predictions.notes,
        )
        if self.on_commit is not None:
            self.on_commit(commitment)
        self._reserved = {c.candidate_id: c.params for c in candidates}
        self._points_of = {
            name: [(c.params, of[c.candidate_id]) for c in points[name] if c.candidate_id in of]
            for name, of in predictions.own.items()
        }
        return commitment

    # -- advice

    def advise(self, study: Study, state: StudyState, advice: Advice) -> Advice:
        """Return the advice with reserved places, and experts where they predicted."""
        commitment = self.commitment(state.next_generation)
        if commitment is None:
            return advice
        return replace(advice, reserves=True, experts=self._experts(study.space, commitment))

    def _experts(self, space: Space, commitment: Commitment) -> tuple[Expert, ...]:
        weighted = commitment.weighted
        lottery = self.state.weights.lottery([t.action for t in weighted])
        experts = []
        for action in sorted({t.action for t in weighted}):
            thoughts = [t for t in weighted if t.action == action]
            points = self._points(commitment, thoughts)
            n = round(MAX_PROPOSALS * lottery[action])
            experts.append(
                Expert(
                    name=thoughts[0].strategy,
                    weight=lottery[action],
                    points=tuple(params for params, _ in points),
                    means=tuple(float(commitment.bins.mean_of(p)) for _, p in points),
                    variances=tuple(float(commitment.bins.variance_of(p)) for _, p in points),
                    proposals=self._proposals(space, commitment.generation, thoughts, n),
                )
            )
        return tuple(experts)

    def _points(
        self, commitment: Commitment, thoughts: Sequence[Thought]
    ) -> list[tuple[Params, np.ndarray]]:
        """Return the points that thoughts of one strategy predicted, with calibrated predictions.

        Of candidates that all of them predicted the mean, of their own proposals each.
        """
        t_cal = self.state.t_cal
        arms = [commitment.forecasts.get(t.thought_id, {}) for t in thoughts]
        arms = [arm for arm in arms if arm]
        shared = [
            name
            for name in commitment.subjects
            if arms and name in self._reserved and all(name in arm for arm in arms)
        ]
        points = [
            (self._reserved[name], np.mean([tempered(arm[name], t_cal) for arm in arms], axis=0))
            for name in shared
        ]
        known_points = (point for t in thoughts for point in self._points_of.get(t.thought_id, ()))
        return [
            *points,
            *((params, tempered(forecast, t_cal)) for params, forecast in known_points),
        ]

    def _region_points(
        self, space: Space, generation: int, thoughts: Sequence[Thought]
    ) -> dict[str, list[Candidate]]:
        """Return thought → a few candidates of its regions."""
        points_by_thought = {}
        for thought in thoughts:
            points = self._proposals(space, generation, [thought], N_REGION_POINTS)
            chosen = {c.candidate_id: c for c in (space.candidate(p, "rlp") for p in points)}
            if chosen:
                points_by_thought[thought.thought_id] = [*chosen.values()]
        return points_by_thought

    def _proposals(
        self, space: Space, generation: int, thoughts: Sequence[Thought], n: int
    ) -> tuple[Params, ...]:
        """Return points of the thoughts' regions, around the best trial."""
        regions = [region for thought in thoughts for region in thought.regions]
        best = self.state.history.best(1)
        if not regions or not best:
            return ()
        rng = self._rng(generation, f"propose/{thoughts[0].strategy}")
        return tuple(draw_points(regions, space, best[0].params, n, rng))

    # -- learning

    def learn(
        self, study: Study, state: StudyState, planned: PlannedGeneration, trials: Sequence[Trial]
    ) -> LearnerStep:
        """Return what a generation taught; nothing is kept until it is committed."""
        generation, before = state.next_generation, self.state
        commitment = self.commitment(generation) or Commitment(
            generation=generation, state=self._features(study, generation + 1), thoughts=()
        )
        outcomes = outcomes_of(commitment, trials, planned.plan.exogenous)
        notes = (f"{subject}: {reason}" for subject, reason in outcomes.void.items())
        commitment = replace(commitment, notes=(*commitment.notes, *notes))
        history = before.history.after(trials, generation, commitment.easier)
        entropy = before.entropy
        if commitment.statistical:
            entropy = relative_entropy([*commitment.statistical.values()])
        known = replace(before, history=history, entropy=entropy)
        after, update, replay = learn(
            known,
            commitment,
            outcomes,
            next_features=self._features(study, generation + 1, known),
            rng=self._rng(generation, "update"),
            replay=self.replay,
        )
        weighted = commitment.weighted
        lottery = before.weights.lottery([t.action for t in weighted])
        self._step = RlpStep(
            commitment=commitment,
            update=update,
            before=before,
            after=after,
            replay=replay,
            weights={t.thought_id: lottery[t.action] for t in weighted},
        )
        return LearnerStep(
            learned=after.to_json(),
            tables=step_tables(self.run_id, self._step),
            summary=_summary(self._step),
        )

    def commit(self) -> None:
        """Move on to what the store has made durable."""
        if self._step is not None:
            self.state, self.replay = self._step.after, self._step.replay
        self._commitment = self._step = None

    def close(self) -> None:
        """Close the model's connections; safe to call twice."""
        self.calls.close(self.writer.model.llm)

    # -- helpers

    def _features(
        self, study: Study, generation: int, state: RlpState | None = None
    ) -> np.ndarray:
        """Return s before a generation; ``None`` means by what is committed."""
        known = state or self.state
        return features(
            known.history,
            study.space,
            budget_left=study.share_left(generation),
            entropy=known.entropy,
            last_gain=known.last_gain,
        )

    def _rng(self, generation: int, purpose: str) -> np.random.Generator:
        """Return a stream that is a function of run, generation and purpose alone."""
        words = [
            int.from_bytes(purpose.encode()[i : i + 4], "big") for i in range(0, len(purpose), 4)
        ]
        return np.random.default_rng([self.seed, generation, *words])


def _summary(step: RlpStep) -> str | None:
    """Return what a generation's thoughts came to; ``None`` if none was asked for."""
    if not step.commitment.thoughts:
        return None
    n, gain = len(step.after.gains), "not measured"
    if n > len(step.before.gains):
        gain = f"{step.after.last_gain:+.2f} nats"
    sentence = f"thoughts: mean information gain {gain}, {plural(n, 'episode')}"
    thought = max(step.commitment.weighted, key=lambda t: step.weights[t.thought_id], default=None)
    if thought is None:
        return f"{sentence}; no thought has a weight"
    return f"{sentence}; weighs most ({thought.strategy}): {shown(thought.text)}"


def shown(text: str, n: int = MOST_SHOWN) -> str:
    """Return the first ``n`` characters of a thought on one line, without secrets and control characters."""
    clean = "".join(
        c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in redacted_text(text)
    )
    line = " ".join(clean.split())
    return line if len(line) <= n else f"{line[: n - 1]}…"
