"""RLP as a learner: one thought per generation, rewarded by its information.

The order guarantees honest forecasts. First, half of the candidates are chosen without a thought.
Then the reply is made durable, the rest of the generation is chosen, and only then is anything
evaluated. A resumed run draws the same action, reads the same answer from the journal and makes
the same commitment. An outcome older than the commitment is ignored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np

from convergence_core.evidence import Archive
from convergence_core.posterior import SpaceModel
from convergence_core.posterior.space_model import FittedSpaceModel
from convergence_core.records import Candidate, Trial, canonical_json, sha256_hex
from convergence_core.result.number_text import plural
from convergence_core.rlp.commitments import ACTIONS, Commitment, Thought
from convergence_core.rlp.learner import RlpState, features, learn
from convergence_core.rlp.outcomes import outcomes_of
from convergence_core.rlp.quantiles import Quantiles
from convergence_core.rlp.rows import RlpStep, step_tables
from convergence_core.rlp.statistical import easier_cases, predictive
from convergence_core.search.learner import LearnerStep
from convergence_core.search.sampler import Advice, Expert, Plan
from convergence_core.search.study import PlannedGeneration, Study
from convergence_core.search.study_state import StudyState
from tasks.rlp.learner_calls import LearnerCalls
from tasks.rlp.prompts import ThoughtRequest, TrialRow
from tasks.rlp.thought_writer import ThoughtWriter
from tasks.secrets.process_redaction import redacted_text

RLP: Final = "rlp"
MOST_STARTS: Final = 6
"""Maximum settings that a thought may propose for the first generation."""
MOST_SETTINGS: Final = 5
"""Maximum settings that a thought may propose for a later generation."""
LEAST_FORECAST: Final = 4
"""Minimum candidates to forecast: known ones fill up too few new ones."""
MOST_SHOWN: Final = 160
"""Maximum characters of a thought on the console."""


@dataclass(slots=True, eq=False, kw_only=True)
class RlpLearner:
    """See ``convergence_core.search.learner``."""

    name = RLP
    variants: ClassVar[Mapping[str, Sequence[str]]] = {}
    run_id: str
    seed: int
    """Seed of the run."""
    writer: ThoughtWriter
    calls: LearnerCalls
    state: RlpState
    """State after the last committed generation."""
    on_commit: Callable[[Commitment], None] | None = None
    """Makes a commitment durable before any choice uses it."""
    _commitment: Commitment | None = field(default=None, init=False)
    _reserved: dict[str, Candidate] = field(default_factory=dict, init=False)
    _step: RlpStep | None = field(default=None, init=False)

    def is_due(self, state: StudyState) -> bool:  # noqa: ARG002 - of the protocol
        """Whether this run writes thoughts."""
        return self.calls.disabled_reason is None

    def commitment(self, generation: int) -> Commitment | None:
        """Return the commitment of a generation; ``None`` if there is none."""
        commitment = self._commitment
        return (
            commitment if commitment is not None and commitment.generation == generation else None
        )

    # -- the thought

    def think(self, study: Study, state: StudyState, advice: Advice) -> int:
        """Write the thought of the next generation; return 1, or 0 if none can advise.

        The candidates to forecast are chosen first, and the thought is durable on return.
        """
        generation = state.next_generation
        if self.calls.disabled_reason is not None:
            return 0
        plan = study.ask(
            state, Advice(reserves=True, preferred=advice.preferred, written=advice.written)
        ).plan
        if not plan.n_advisable:
            return 0
        fitted = _fitted(study, state)
        n_forecast = 0 if fitted.learned is None else self.writer.settings.n_predicted
        reserved = _reserved(plan, state.search.archive, n_forecast)
        draft = self._draft(study, state, is_start=fitted.learned is None)
        trials = _trials(fitted, state, self.state.forecasts)
        best = max(trials, key=lambda row: row.mean, default=None)
        request = ThoughtRequest(
            generation=generation,
            kind=draft.kind,
            space=study.space,
            around=best.params if best is not None else study.space.baseline() or {},
            trials=trials,
            reserved={c.candidate_id: c.params for c in reserved},
            n_cells={a.candidate.candidate_id: len(a.cells) for a in plan.assignments},
            n_settings=min(plan.n_advisable, MOST_STARTS)
            if draft.kind == "start"
            else MOST_SETTINGS,
            notes=self.state.notes,
        )
        thought = self.calls.run(
            lambda ask_model: self.writer.write(
                draft, request, ask_model, lambda: self._rng(generation, "settings")
            ),
            generation,
        )
        forecasts = zip(reserved, predictive(fitted, reserved), strict=True)
        self._commitment = Commitment(
            generation=generation,
            state=self._features(study, state, generation),
            thought=thought,
            subjects=tuple(c.candidate_id for c in reserved),
            posterior={c.candidate_id: quantiles for c, quantiles in forecasts},
            easier=easier_cases(fitted),
            committed_us=thought.committed_us,
        )
        self._reserved = {c.candidate_id: c for c in reserved}
        if self.on_commit is not None:
            self.on_commit(self._commitment)
        return int(thought.reason is None)

    def _draft(self, study: Study, state: StudyState, *, is_start: bool) -> Thought:
        """Return the thought to write: its kind, with or without notes, is drawn at random."""
        generation = state.next_generation
        propensities = self.state.propensities(self._features(study, state, generation))
        action = int(self._rng(generation, "draw").random() >= propensities[0])
        return Thought(
            thought_id=sha256_hex(canonical_json([self.run_id, generation, "thought", 0]))[:24],
            generation=generation,
            kind="start" if is_start else ACTIONS[action],
            log_propensity=0.0 if is_start else float(np.log(propensities[action])),
        )

    # -- advice

    def advise(self, study: Study, state: StudyState, advice: Advice) -> Advice:  # noqa: ARG002
        """Return the advice with reserved places, and the model as an expert for its forecasts.

        Before the first evaluation, all of its settings are evaluated. Later, the first setting is
        certain: it gets a whole place if earlier ones were worth one, otherwise one cell. The
        others are evaluated if draws with the model's forecasts find them best.
        """
        commitment = self.commitment(state.next_generation)
        if commitment is None or commitment.thought is None:
            return advice
        settings = [setting.params for setting in commitment.settings]
        is_start = commitment.thought.kind == "start"
        points = [
            *((self._reserved[name].params, q) for name, q in commitment.forecasts.items()),
            *((s.params, s.forecast) for s in commitment.settings if s.forecast is not None),
        ]
        expert = Expert(
            weight=self.state.weight * self.state.worth_a_place,
            points=tuple(params for params, _ in points),
            means=tuple(q.mean for _, q in points),
            variances=tuple(q.variance for _, q in points),
            proposals=tuple(settings[1:]),
        )
        rng = self._rng(commitment.generation, "place")
        is_whole = is_start or rng.random() < self.state.worth_a_place
        certain = tuple(settings if is_start else settings[:1])
        return replace(
            advice,
            reserves=True,
            proposals=certain if is_whole else (),
            probes=() if is_whole else certain,
            experts=(expert,) if points and not is_start else (),
        )

    # -- learning

    def learn(
        self, study: Study, state: StudyState, planned: PlannedGeneration, trials: Sequence[Trial]
    ) -> LearnerStep:
        """Return the state after a generation; it takes effect at the commit."""
        generation, before = state.next_generation, self.state
        commitment = self.commitment(generation) or Commitment(
            generation=generation, state=self._features(study, state, generation)
        )
        outcomes = outcomes_of(commitment, trials, planned.plan.exogenous)
        after, update = learn(
            before,
            commitment,
            outcomes,
            next_features=self._features(study, state, generation + 1),
            rng=self._rng(generation, "update"),
        )
        self._step = RlpStep(commitment=commitment, update=update, before=before, after=after)
        return LearnerStep(
            learned=after.to_json(),
            tables=step_tables(self.run_id, self._step),
            summary=_summary(self._step),
        )

    def commit(self) -> None:
        """Adopt the state that the store has made durable."""
        if self._step is not None:
            self.state = self._step.after
        self._commitment = self._step = None

    def close(self) -> None:
        """Close the model's connections; safe to call twice."""
        self.calls.close(self.writer.model.llm)

    # -- helpers

    def _features(self, study: Study, state: StudyState, generation: int) -> np.ndarray:
        """Return the features s before a generation."""
        return features(
            len(state.search.archive),
            budget_left=study.share_left(generation),
            last_gain=self.state.last_gain,
        )

    def _rng(self, generation: int, purpose: str) -> np.random.Generator:
        """Return a stream that depends only on run, generation and purpose."""
        words = [
            int.from_bytes(purpose.encode()[i : i + 4], "big") for i in range(0, len(purpose), 4)
        ]
        return np.random.default_rng([self.seed, generation, *words])


def _reserved(plan: Plan, archive: Archive, most: int) -> list[Candidate]:
    """Return the candidates to forecast, which were chosen without a thought.

    New ones come first, because evaluated ones have scores of their own.
    """
    names = {cell.candidate_id for cell in plan.exogenous}
    chosen = [a.candidate for a in plan.assignments if a.candidate.candidate_id in names]
    new = [c for c in chosen if c.candidate_id not in archive]
    known = [c for c in chosen if c.candidate_id in archive]
    return [*new, *known[: max(0, LEAST_FORECAST - len(new))]][:most]


def _fitted(study: Study, state: StudyState) -> FittedSpaceModel:
    """Return the posterior before the next generation."""
    model = SpaceModel(space=study.space, deterministic=study.schedule.deterministic)
    return model.warm(state.search.memory).fit(state.search.archive, case_ids=study.case_order)


def _trials(
    fitted: FittedSpaceModel, state: StudyState, forecasts: Mapping[str, Quantiles]
) -> tuple[TrialRow, ...]:
    """Return the posterior's data: means adjusted for cases, and their standard errors."""
    if fitted.learned is None:
        return ()
    effects, members = fitted.learned.effects, state.search.archive.members
    errors = np.sqrt(np.diag(effects.errors))
    return tuple(
        TrialRow(
            candidate_id=name,
            params=members[name].candidate.params,
            n=len(members[name].rewards),
            mean=float(effects.mean[i]),
            se=float(errors[i]) if effects.is_measured else None,
            forecast=forecasts.get(name),
        )
        for i, name in enumerate(fitted.learned.evidence.ids)
    )


def _summary(step: RlpStep) -> str | None:
    """Return the result of a generation's thought in words; ``None`` without a request."""
    thought, reward = step.commitment.thought, step.update.reward
    if thought is None:
        return None
    if thought.reason is not None:
        return f"thoughts: none, {thought.reason}"
    n = len(step.after.gains)
    gain = "not measured" if reward is None else f"{reward:+.2f} nats"
    measures = f"information gain {gain}, {plural(n, 'episode')}; weight {step.after.weight:.2f}"
    n_own = sum(row.posterior is None for row in step.update.rows)
    return f"thoughts: {measures}; {plural(n_own, 'proposal')}; reply: {shown(thought.shown)}"


def shown(text: str, n: int = MOST_SHOWN) -> str:
    """Return the first ``n`` characters of a thought on one line, cleaned of secrets."""
    clean = "".join(
        c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in redacted_text(text)
    )
    line = " ".join(clean.split())
    return line if len(line) <= n else f"{line[: n - 1]}…"
