"""Where a run stands: after its last committed generation, and after trials not yet committed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convergence_core.ports import Checkpoint
from convergence_core.records import Json, Params, Trial, canonical_json
from convergence_core.sao.state import SaoState
from convergence_core.search.recommend import Recommendation
from convergence_core.search.sampler import SearchState
from convergence_core.search.stopper import StopperState as StopperProgress
from tasks.rlp.run_rlp import RlpStep


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """What is known after the last committed generation; all that a resumed run needs."""

    next_generation: int = 0
    search: SearchState
    rng_state: Mapping[str, Any]
    stopper: StopperProgress
    n_calls: int = 0
    """Calls of the committed generations, retries included."""
    exhausted: bool = False
    """The sampler found nothing new to ask."""
    n_repairs: int = 0
    """Generations that only asked missing cells again; they do not count as planned ones."""
    spent: str | None = None
    """Which limit of the budget cut a generation short, in words; ``None``: none did."""
    thoughts: Json = None
    """What was learned of thinking, as JSON; ``None``: nobody thinks."""
    preferences: Json = None
    """What was learned of preferences, as JSON; ``None``: there are none."""

    def params_of(self, candidate_id: str) -> Params:
        """Return the parameters of a candidate that was asked."""
        return self.search.archive.members[candidate_id].candidate.params

    def to_checkpoint(self) -> Checkpoint:
        """Return the columns of ``generations`` that hold this progress."""
        return Checkpoint(
            generation=self.next_generation - 1,
            rng_state_json=json.dumps(self.rng_state, sort_keys=True),
            sampler_state_json=canonical_json(self.search.to_json()),
            progress_json=canonical_json(
                {
                    "stopper": self.stopper.to_json(),
                    "n_calls": self.n_calls,
                    "exhausted": self.exhausted,
                    "n_repairs": self.n_repairs,
                    "spent": self.spent,
                    "thoughts": self.thoughts,
                    "preferences": self.preferences,
                }
            ),
        )

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> "RunProgress":
        """Rebuild the progress that ``to_checkpoint`` wrote."""
        numbers = json.loads(checkpoint.progress_json)
        return cls(
            next_generation=checkpoint.generation + 1,
            search=SearchState.from_json(json.loads(checkpoint.sampler_state_json)),
            rng_state=json.loads(checkpoint.rng_state_json),
            stopper=StopperProgress.from_json(numbers["stopper"]),
            n_calls=numbers["n_calls"],
            exhausted=numbers["exhausted"],
            n_repairs=numbers.get("n_repairs", 0),
            spent=numbers.get("spent"),
            thoughts=numbers.get("thoughts"),
            preferences=numbers.get("preferences"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a generation's trials have taught, before it is committed."""

    trials: tuple[Trial, ...]
    progress: RunProgress
    recommendation: Recommendation | None
    """Whom this evidence would hand over; ``None`` before the first reward."""
    taught: RlpStep | None = None
    """What thoughts taught; ``None``: nobody thinks."""
    preferred: SaoState | None = None
    """What preferences have taught; ``None``: there are none."""


def limit_reached(trials: Sequence[Trial]) -> str | None:
    """Return which limit kept a cell from being asked, in words."""
    for trial in trials:
        for evaluation in trial.evaluations:
            if evaluation.error_type == "budget":
                return evaluation.error
    return None
