"""State of a study after a committed generation, and its checkpoint in the store."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from convergence_core.ports import Checkpoint
from convergence_core.records import Json, Params, canonical_json
from convergence_core.search.sampler import SearchState
from convergence_core.search.stopper import StopperState

_STORED_NAMES: Final = {"rlp": "thoughts", "sao": "preferences"}
"""Learner → key of its state in a checkpoint; others are kept under their own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyState:
    """What is known after the last committed generation: all that a resumed run needs."""

    search: SearchState
    """The evidence, and the sampler's own memory."""
    rng_state: Mapping[str, Any]
    """State of the generator that draws the next plan."""
    next_generation: int = 0
    stopper: StopperState = field(default_factory=StopperState)
    n_calls: int = 0
    """Calls of the committed generations, retries included."""
    n_repairs: int = 0
    """Generations that only asked missing cells again; they do not count as planned ones."""
    repairs_next: bool = False
    """Whether cells without a reward are asked again first; not part of a checkpoint."""
    is_exhausted: bool = False
    """Whether a finite space is wholly evaluated."""
    is_answered: bool = False
    """Whether any candidate answered: rewards of failures alone recommend none."""
    no_reward: str | None = None
    """Why no evaluation has a reward, in words; ``None``: one has, or a limit kept all from it."""
    limit: str | None = None
    """Limit of the budget that cut a generation short, in words; ``None``: none did."""
    learned: Mapping[str, Json] = field(default_factory=dict)
    """Learner → its state, as JSON; see ``convergence_core.search.learner``."""

    @property
    def variants(self) -> Mapping[str, Sequence[str]]:
        """Text parameter → texts that learners have added to the search space."""
        found: dict[str, list[Any]] = {}
        for learned in self.learned.values():
            if isinstance(learned, dict) and isinstance(texts := learned.get("variants"), dict):
                for name, own in texts.items():
                    found.setdefault(name, []).extend(own if isinstance(own, list) else ())
        return found

    @property
    def vectors(self) -> Mapping[str, str]:
        """Text → its direction, as of ``Space.vectors``; those that learners have bought."""
        found: dict[str, str] = {}
        for learned in self.learned.values():
            if isinstance(learned, dict) and isinstance(own := learned.get("vectors"), dict):
                found |= {text: str(vector) for text, vector in own.items()}
        return found

    def params_of(self, candidate_id: str) -> Params:
        """Return the parameters of a candidate that was asked."""
        return self.search.archive.members[candidate_id].candidate.params

    def to_checkpoint(self) -> Checkpoint:
        """Return the columns of ``generations`` that hold this state."""
        progress = {
            "stopper": self.stopper.to_json(),
            "n_calls": self.n_calls,
            "n_repairs": self.n_repairs,
            "exhausted": self.is_exhausted,
            "answered": self.is_answered,
            "no_reward": self.no_reward,
            "spent": self.limit,
            **{_STORED_NAMES.get(name, name): state for name, state in self.learned.items()},
        }
        return Checkpoint(
            generation=self.next_generation - 1,
            rng_state_json=json.dumps(self.rng_state, sort_keys=True),
            sampler_state_json=canonical_json(self.search.to_json()),
            progress_json=canonical_json(progress),
        )

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> Self:
        """Rebuild the state that ``to_checkpoint`` wrote, in this version or an earlier one."""
        progress = json.loads(checkpoint.progress_json)
        search = SearchState.from_json(json.loads(checkpoint.sampler_state_json))
        own = {
            "stopper", "n_calls", "n_repairs", "exhausted", "answered", "no_reward", "spent",
        }  # fmt: skip
        names = {key: name for name, key in _STORED_NAMES.items()}
        return cls(
            search=search,
            rng_state=json.loads(checkpoint.rng_state_json),
            next_generation=checkpoint.generation + 1,
            stopper=StopperState.from_json(progress["stopper"]),
            n_calls=progress["n_calls"],
            n_repairs=progress.get("n_repairs", 0),
            is_exhausted=progress["exhausted"],
            is_answered=progress.get("answered", _has_reward(search)),
            no_reward=progress.get("no_reward"),
            limit=progress.get("spent"),
            learned={
                names.get(key, key): state
                for key, state in progress.items()
                if key not in own and state is not None
            },
        )


def _has_reward(search: SearchState) -> bool:
    """Whether any reward is above 0; stands for ``is_answered`` in checkpoints without it."""
    return any(reward > 0 for member in search.archive for reward in member.rewards.values())
