"""Contract of learners, which advise a sampler and learn from the outcomes.

RLP (an LLM's hypotheses, rewarded by information gain) and SAO (synthetic preference data) are
learners. Each generation calls a run's learners in order: ``think`` before planning, ``advise``
while planning, ``learn`` from the trials, ``commit`` after the store has saved the result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from convergence_core.ports import Row
from convergence_core.records import Json, Trial
from convergence_core.search.sampler import Advice
from convergence_core.search.study import PlannedGeneration, Study
from convergence_core.search.study_state import StudyState


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerStep:
    """Result of learning from a generation, saved with the generation."""

    learned: Json
    """New state for ``StudyState.learned``."""
    tables: Mapping[str, Sequence[Row]]
    """Table → rows of the generation."""
    summary: str | None = None
    """One-line report of the step without secrets; ``None`` if there is nothing to report."""


class Learner(Protocol):
    """Learner of an open run."""

    @property
    def name(self) -> str:
        """Short name, e.g. ``rlp``; the key of its state in ``StudyState.learned``."""

    @property
    def variants(self) -> Mapping[str, Sequence[str]]:
        """Prompt parameter → prompts that join the search space; empty for most learners."""

    def is_due(self, state: StudyState) -> bool:
        """Return whether the learner has work before the next generation."""

    def think(self, study: Study, state: StudyState, advice: Advice) -> int:
        """Work before the next generation; the result is durable on return.

        Args:
            study: Study of the run.
            state: State before the generation.
            advice: Advice of the preceding learners.

        Returns:
            Number of results, for example thoughts or pairs.
        """

    def advise(self, study: Study, state: StudyState, advice: Advice) -> Advice:
        """Return the advice of the preceding learners, extended by this one's."""

    def learn(
        self, study: Study, state: StudyState, planned: PlannedGeneration, trials: Sequence[Trial]
    ) -> LearnerStep:
        """Return the result of learning from a generation; ``commit`` makes it the state.

        Args:
            study: Study of the run.
            state: State before the generation.
            planned: The planned generation.
            trials: All trials of the generation.
        """

    def commit(self) -> None:
        """Adopt the last result of ``learn``, which the store has saved."""

    def close(self) -> None:
        """Release resources; a second call has no effect."""
