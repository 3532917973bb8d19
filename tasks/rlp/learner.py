"""RLP as a learner: thoughts, experts in the draws, information gain."""

from collections.abc import Mapping, Sequence
from typing import Final

from convergence_core.ports import Row
from convergence_core.posterior import SpaceModel
from convergence_core.records import Trial
from convergence_core.rlp.rows import prediction_rows, text_rows, thought_rows, update_rows
from convergence_core.search.learner import LearnerStep
from convergence_core.search.sampler import Advice
from convergence_core.search.study import Asked, Study, StudyState
from tasks.rlp.run_rlp import RlpStep, Thinking

RLP: Final = "rlp"


class RlpLearner:
    """See ``convergence_core.search.learner``."""

    name = RLP
    variants: Mapping[str, Sequence[str]] = {}

    def __init__(self, thinking: Thinking, run_id: str) -> None:
        self.thinking = thinking
        self._run_id = run_id
        self._taught: RlpStep | None = None

    @property
    def disabled_reason(self) -> str | None:
        """Why no thoughts are written in this run; ``None``: they are."""
        return self.thinking.disabled_reason

    def is_due(self, state: StudyState) -> bool:  # noqa: ARG002 - of the protocol
        """Whether thoughts are written in this run."""
        return self.disabled_reason is None

    def think(self, study: Study, state: StudyState, advice: Advice) -> int:
        """Write the thoughts of the next generation, then predict candidates chosen without them."""
        if study.space is not self.thinking.space:
            deterministic = study.schedule.deterministic
            self.thinking.widen(SpaceModel(space=study.space, deterministic=deterministic))
        generation = state.next_generation
        thoughts = self.thinking.think(generation, study.share_left(generation))
        if self.thinking.commitment(generation) is not None:
            plan = study.ask(state, Advice(reserves=True, preferred=advice.preferred)).plan
            own = {cell.candidate_id for cell in plan.exogenous}
            reserved = [a.candidate for a in plan.assignments if a.candidate.candidate_id in own]
            most = -(-len(plan.assignments) // 2)
            self.thinking.predict(
                generation, reserved[:most], state.search, case_ids=study.case_order
            )
        return sum(thought.speaks for thought in thoughts)

    def advise(self, study: Study, state: StudyState, advice: Advice) -> Advice:  # noqa: ARG002
        """Return the advice with reserved places, and experts where they predicted."""
        return self.thinking.advice(state.next_generation, advice)

    def learn(
        self, study: Study, state: StudyState, asked: Asked, trials: Sequence[Trial]
    ) -> LearnerStep:
        """Return what a generation taught about thoughts."""
        generation = state.next_generation
        taught = self.thinking.learn(
            generation, trials, asked.plan.exogenous, study.share_left(generation + 1)
        )
        self._taught = taught
        commitment, lesson = taught.commitment, taught.lesson
        tables: dict[str, list[Row]] = {
            "payloads": text_rows(self._run_id, commitment.thoughts),
            "thoughts": thought_rows(self._run_id, commitment, lesson, taught.weights),
            "predictions": prediction_rows(self._run_id, commitment, lesson),
            "policy_updates": update_rows(
                self._run_id, commitment, lesson, taught.before, taught.after
            ),
        }
        return LearnerStep(learned=taught.after.to_json(), tables=tables)

    def commit(self) -> None:
        """Move on to what the store has made durable."""
        if self._taught is not None:
            self.thinking.commit(self._taught)

    def close(self) -> None:
        """Close the model's connections; safe to call twice."""
        self.thinking.close()
