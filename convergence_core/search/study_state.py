"""State of a study after a committed generation, and its checkpoint in the store.

A generation improves if the recommended candidate is *credibly* better than the remembered leader:
under the same posterior the gain is at least ``min_improvement`` and positive with probability
``CREDIBLE``. Comparison with the leader's earlier estimate would stop runs for the wrong reason:
first estimates are high by luck, and a falling lucky estimate does not mean that the search has
converged. One flat generation never stops a run; ``patience`` flat ones in a row do. With hard
constraints, a leader that becomes infeasible is replaced, and no generation is flat while no
evaluated candidate is feasible.

The other reason concerns the rest of the space: with probability ``SETTLED``, no considered
candidate, evaluated or not, lies more than ``min_improvement`` above the leader.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from convergence_core.config.optimization import EarlyStoppingConfig
from convergence_core.ports import Checkpoint
from convergence_core.records import Json, canonical_json
from convergence_core.search.recommend import Recommendation
from convergence_core.search.sampler import SETTLED, SearchState

CREDIBLE = 0.9
"""Minimum probability that a new leader is better for it to count as an improvement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopperState:
    """Progress that the stopper remembers."""

    leader: str | None = None
    """Candidate of the last improvement; ``None`` before the first reward."""
    n_flat: int = 0
    """Number of generations since the last improvement."""
    regret_upper_bound: float | None = None
    """Bound after the last generation, in units of reward; ``None`` if unknown."""

    def to_json(self) -> dict[str, Json]:
        """Return a JSON value for ``from_json``."""
        return {
            "leader": self.leader,
            "n_flat": self.n_flat,
            "left_to_gain": self.regret_upper_bound,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "StopperState":
        """Rebuild from ``to_json``."""
        return cls(
            leader=value["leader"],
            n_flat=value["n_flat"],
            regret_upper_bound=value["left_to_gain"],
        )

    def after(
        self,
        recommendation: Recommendation | None,
        rule: EarlyStoppingConfig,
        *,
        regret_upper_bound: float | None = None,
    ) -> "StopperState":
        """Return the progress after a generation.

        Args:
            recommendation: Recommendation with its lead over the remembered leader; ``None``
                counts as flat.
            rule: Early stopping rule.
            regret_upper_bound: Bound after the generation.
        """
        if recommendation is not None and _leads(recommendation, rule):
            return StopperState(
                leader=recommendation.candidate_id, regret_upper_bound=regret_upper_bound
            )
        return replace(self, n_flat=self.n_flat + 1, regret_upper_bound=regret_upper_bound)

    def reason(self, rule: EarlyStoppingConfig) -> str | None:
        """Return why the run stops, in words; ``None`` if it continues."""
        if not rule.enabled:
            return None
        gain, bound = f"{rule.min_improvement:g}", self.regret_upper_bound
        if bound is not None and bound <= rule.min_improvement and self.leader is not None:
            return (
                f"nothing is left to gain: with {100 * SETTLED:.0f} % probability no configuration "
                f"considered, tried or not, is more than {gain} better than the leader"
            )
        if self.n_flat >= rule.patience:
            last = "generation" if self.n_flat == 1 else f"{self.n_flat} generations"
            return f"no configuration of the last {last} is credibly {gain} better than the leader"
        return None


def _leads(recommendation: Recommendation, rule: EarlyStoppingConfig) -> bool:
    """Return whether a recommendation replaces the remembered leader."""
    lead = recommendation.lead
    if lead is None or not lead.rival_is_feasible or not recommendation.is_feasible:
        return True
    least = max(rule.min_improvement, 1e-12)
    return lead.mean >= least and lead.probability >= CREDIBLE


_STORED_NAMES: Final = {"rlp": "thoughts", "sao": "preferences"}
"""Learner → key of its state in a checkpoint, if it is not the learner's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyState:
    """State after the last committed generation: everything that a resumed run needs."""

    search: SearchState
    """Evidence and the sampler's memory."""
    rng_state: Mapping[str, Any]
    """State of the generator that draws the next plan."""
    next_generation: int = 0
    stopper: StopperState = field(default_factory=StopperState)
    n_calls: int = 0
    """Calls of the committed generations, including retries."""
    n_repairs: int = 0
    """Generations that only repeat missing cells; they do not count as planned generations."""
    repairs_next: bool = False
    """Whether the next generation repeats cells without a reward; not part of a checkpoint."""
    is_exhausted: bool = False
    """Whether every point of a finite space is evaluated."""
    is_answered: bool = False
    """Whether any candidate has answered: rewards of failures alone recommend no candidate."""
    no_reward: str | None = None
    """Why no evaluation has a reward; ``None`` if one has, or if a limit is the cause."""
    limit: str | None = None
    """Budget limit that cut a generation short, in words; ``None`` if there is none."""
    learned: Mapping[str, Json] = field(default_factory=dict)
    """Learner → its JSON state; see ``convergence_core.search.learner``."""

    @property
    def variants(self) -> Mapping[str, Sequence[str]]:
        """Text parameter → prompts that learners added to the search space."""
        variants: dict[str, list[Any]] = {}
        for learned in self.learned.values():
            if isinstance(learned, dict) and isinstance(texts := learned.get("variants"), dict):
                for name, text in texts.items():
                    variants.setdefault(name, []).extend(text if isinstance(text, list) else ())
        return variants

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
            sampler_state_json=self.search.canonical_json,
            progress_json=canonical_json(progress),
        )

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> Self:
        """Rebuild the state from a checkpoint."""
        progress = json.loads(checkpoint.progress_json)
        search = SearchState.from_json(json.loads(checkpoint.sampler_state_json))
        learner_states = {
            "stopper", "n_calls", "n_repairs", "exhausted", "answered", "no_reward", "spent",
        }  # fmt: skip
        names = {key: name for name, key in _STORED_NAMES.items()}
        return cls(
            search=search.at(checkpoint.generation + 1),  # earlier versions did not count repairs
            rng_state=json.loads(checkpoint.rng_state_json),
            next_generation=checkpoint.generation + 1,
            stopper=StopperState.from_json(progress["stopper"]),
            n_calls=progress["n_calls"],
            n_repairs=progress["n_repairs"],
            is_exhausted=progress["exhausted"],
            is_answered=progress["answered"],
            no_reward=progress["no_reward"],
            limit=progress["spent"],
            learned={
                names.get(key, key): state
                for key, state in progress.items()
                if key not in learner_states and state is not None
            },
        )
