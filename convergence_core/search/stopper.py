"""Early stopping: nothing has been gained for a while, or nothing is left to gain.

A generation improves when the candidate that would be handed over is *credibly* better than the
remembered leader: both read from the same posterior, the gain at least ``min_improvement`` and its
sign as sure as ``CREDIBLE``. Comparing with what the leader seemed worth when it took the lead
would stop runs for the wrong reason: first estimates are high by luck, and the fall of a lucky
estimate is no sign that the search has ended. One flat generation never ends a run; ``patience`` of
them in a row do. Where there are hard constraints, a leader that came to be infeasible is replaced,
and while nothing asked is feasible no generation is flat.

The other reason is a statement about the rest of the space: with probability ``SETTLED`` no
candidate that the sampler considered, asked or not, lies more than ``min_improvement`` above the
leader.
"""

from dataclasses import dataclass, replace

from convergence_core.records import Json
from convergence_core.search.recommend import Recommendation
from convergence_core.search.sampler import SETTLED

CREDIBLE = 0.9
"""Probability that a new leader is better, from which on it counts as an improvement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopperState:
    """Progress that the stopper remembers."""

    leader: str | None = None
    """Candidate that last counted as an improvement; ``None`` before the first reward."""
    n_flat: int = 0
    """Generations since."""
    regret_upper_bound: float | None = None
    """After the last generation; ``None``: unknown."""

    def to_json(self) -> Json:
        """Return a JSON value from which ``from_json`` makes an equal one."""
        return {
            "leader": self.leader,
            "n_flat": self.n_flat,
            "left_to_gain": self.regret_upper_bound,
        }

    @classmethod
    def from_json(cls, value: Json) -> "StopperState":
        """Rebuild from ``to_json``.

        Raises:
            ValueError: the value was not made by ``to_json``.
        """
        found = value if isinstance(value, dict) else {}
        leader, n_flat, bound = (found.get(k) for k in ("leader", "n_flat", "left_to_gain"))
        if (
            isinstance(leader, str | None)
            and isinstance(n_flat, int)
            and isinstance(bound, int | float | None)
        ):
            return cls(leader=leader, n_flat=n_flat, regret_upper_bound=bound)
        raise ValueError(f"not a stopper's progress: {str(value)[:80]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopper:
    """``optimization.execution.early_stopping``."""

    enabled: bool = True
    patience: int = 3
    """Generations in a row without improvement before the run stops."""
    min_improvement: float = 0.01
    """Gain in mean reward that counts."""

    def update(
        self,
        progress: StopperState,
        recommendation: Recommendation | None,
        *,
        regret_upper_bound: float | None = None,
    ) -> StopperState:
        """Return the progress after a generation.

        Args:
            progress: before it.
            recommendation: of the evidence now, with its lead over the remembered leader; ``None``
                counts as flat.
            regret_upper_bound: see ``StopperState.regret_upper_bound``.
        """
        if recommendation is not None and self._leads(recommendation):
            return StopperState(
                leader=recommendation.candidate_id, regret_upper_bound=regret_upper_bound
            )
        return replace(progress, n_flat=progress.n_flat + 1, regret_upper_bound=regret_upper_bound)

    def reason(self, progress: StopperState) -> str | None:
        """Return why the run is to stop, in words; ``None``: it continues."""
        if not self.enabled:
            return None
        gain, bound = f"{self.min_improvement:g}", progress.regret_upper_bound
        if bound is not None and bound <= self.min_improvement and progress.leader is not None:
            return (
                f"nothing is left to gain: with {SETTLED:.0%} probability no configuration "
                f"considered, tried or not, is more than {gain} better than the leader"
            )
        if progress.n_flat >= self.patience:
            return (
                f"in {progress.n_flat} generations in a row no configuration was found that is "
                f"credibly {gain} better than the leader"
            )
        return None

    def _leads(self, recommendation: Recommendation) -> bool:
        """Return whether the one handed over replaces the remembered leader."""
        lead = recommendation.lead
        if lead is None or not lead.rival_is_feasible or not recommendation.is_feasible:
            return True
        least = max(self.min_improvement, 1e-12)
        return lead.mean >= least and lead.probability >= CREDIBLE
