"""Contract of learners: advice for a sampler, and what outcomes teach about it.

RLP (an LLM's hypotheses, rewarded by information gain) and SAO (synthetic preference data) are
learners. A run holds a list of them and takes each through a generation in the same order: ``think``
before it is planned, ``advise`` as it is planned, ``learn`` from its trials, ``commit`` once the
store has made it durable.
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
    """What a generation taught a learner; saved with the generation."""

    learned: Json
    """State after it, for ``StudyState.learned``."""
    tables: Mapping[str, Sequence[Row]]
    """Table → rows of the generation."""
    summary: str | None = None
    """What it did, on one line without secrets; ``None`` means nothing worth a line."""


class Learner(Protocol):
    """One learner of an open run."""

    @property
    def name(self) -> str:
        """Short name, e.g. ``rlp``; the key of its state in ``StudyState.learned``."""

    @property
    def disabled_reason(self) -> str | None:
        """Why it does nothing in this run, in words; ``None`` if it works."""

    @property
    def variants(self) -> Mapping[str, Sequence[str]]:
        """Text parameter → texts that join the search space; empty for most learners."""

    def is_due(self, state: StudyState) -> bool:
        """Whether it has something to do before the next generation."""

    def think(self, study: Study, state: StudyState, advice: Advice) -> int:
        """Do its work before the next generation; durable when this returns.

        Args:
            study: of the run.
            state: before the generation.
            advice: of the learners before it.

        Returns:
            How many thoughts, or pairs, or whatever else it makes have come of it.
        """

    def advise(self, study: Study, state: StudyState, advice: Advice) -> Advice:
        """Return the advice of the learners before it, and its own."""

    def learn(
        self, study: Study, state: StudyState, planned: PlannedGeneration, trials: Sequence[Trial]
    ) -> LearnerStep:
        """Return what a generation taught; nothing is kept before ``commit``.

        Args:
            study: of the run.
            state: before the generation.
            planned: the generation as it was planned.
            trials: all of it.
        """

    def commit(self) -> None:
        """Keep what ``learn`` returned last: the store has made it durable."""

    def close(self) -> None:
        """Free what it holds; safe to call twice."""
