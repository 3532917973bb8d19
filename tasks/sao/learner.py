"""SAO as a learner: rounds of preferences, and distilled texts in the draws."""

from collections.abc import Mapping, Sequence
from typing import Final

from convergence_core.ports import Row
from convergence_core.records import Trial
from convergence_core.sao.state import SaoState
from convergence_core.search.learner import LearnerStep
from convergence_core.search.sampler import Advice
from convergence_core.search.study import Asked, Study, StudyState
from tasks.sao.run_sao import Preferring

SAO: Final = "sao"


class SaoLearner:
    """See ``convergence_core.search.learner``."""

    name = SAO

    def __init__(self, preferring: Preferring) -> None:
        self.preferring = preferring
        self._state: SaoState | None = None

    @property
    def disabled_reason(self) -> str | None:
        """Why no rounds are played in this run; ``None``: they are."""
        return self.preferring.disabled_reason

    @property
    def variants(self) -> Mapping[str, Sequence[str]]:
        """Text parameter → texts distilled for it."""
        return self.preferring.now.variants

    def is_due(self, state: StudyState) -> bool:
        """Whether a round is to be played before the next generation."""
        return self.preferring.is_due(state.next_generation)

    def think(self, study: Study, state: StudyState, advice: Advice) -> int:  # noqa: ARG002
        """Play the round before the next generation; return how many pairs it kept."""
        self.preferring.widen(study.space)
        found = self.preferring.play(state.next_generation, state.search, study.leader(state))
        return 0 if found is None else sum(pair.dropped_by is None for pair in found.pairs)

    def advise(self, study: Study, state: StudyState, advice: Advice) -> Advice:
        """Return the advice with the leader's parameters, each text replaced by a distilled one."""
        leader = study.leader(state) if self.variants else None
        return self.preferring.advice(advice, leader)

    def learn(
        self,
        study: Study,  # noqa: ARG002 - of the protocol
        state: StudyState,
        asked: Asked,  # noqa: ARG002
        trials: Sequence[Trial],  # noqa: ARG002
    ) -> LearnerStep:
        """Return the state after the round before this generation, and its rows."""
        self._state = self.preferring.now
        played = self.preferring.round
        tables: Mapping[str, list[Row]] = {}
        if played is not None and played.generation == state.next_generation:
            tables = played.tables
        return LearnerStep(learned=self._state.to_json(), tables=tables)

    def commit(self) -> None:
        """Move on to what the store has made durable."""
        if self._state is not None:
            self.preferring.commit(self._state)

    def close(self) -> None:
        """Close the models' connections; safe to call twice."""
        self.preferring.close()
