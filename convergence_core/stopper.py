"""When to stop before the last generation: nothing has overtaken the leader for a while.

A generation improves when the candidate that would be handed over is worth at least
``min_improvement`` more than the *remembered leader* is worth now, both read from the same
posterior. Comparing with what the leader seemed worth when it took the lead would stop runs for
the wrong reason: first estimates are high by luck, and the fall of a lucky estimate is no sign that
the search has ended. One flat generation never ends a run; ``patience`` of them in a row do.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from convergence_core.records import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the stopper remembers."""

    leader: str | None = None
    """Candidate that last counted as an improvement; ``None`` before the first reward."""
    n_flat: int = 0
    """Generations since."""

    def to_json(self) -> Json:
        """Return a JSON value from which ``from_json`` makes an equal one."""
        return {"leader": self.leader, "n_flat": self.n_flat}

    @classmethod
    def from_json(cls, value: Json) -> "Progress":
        """Rebuild from ``to_json``.

        Raises:
            ValueError: the value was not made by ``to_json``.
        """
        if isinstance(value, dict):
            leader, n_flat = value.get("leader"), value.get("n_flat")
            if isinstance(n_flat, int) and (leader is None or isinstance(leader, str)):
                return cls(leader=leader, n_flat=n_flat)
        raise ValueError(f"not a stopper's progress: {str(value)[:80]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopper:
    """``optimization.execution.early_stopping``."""

    enabled: bool = True
    patience: int = 3
    """Generations in a row without improvement before the run stops."""
    min_improvement: float = 0.01
    """Gain in posterior mean reward over the remembered leader that counts."""

    def update(self, progress: Progress, id_to_mean: Mapping[str, float]) -> Progress:
        """Return the progress after a generation.

        Args:
            progress: before it.
            id_to_mean: candidate → posterior mean reward now, of all candidates with a reward;
                empty counts as flat.
        """
        if not id_to_mean:
            return Progress(leader=progress.leader, n_flat=progress.n_flat + 1)
        best = min(id_to_mean, key=lambda name: (-id_to_mean[name], name))
        if progress.leader is None:
            return Progress(leader=best)
        gain = id_to_mean[best] - id_to_mean[progress.leader]
        if gain >= max(self.min_improvement, 1e-12):
            return Progress(leader=best)
        return Progress(leader=progress.leader, n_flat=progress.n_flat + 1)

    def should_stop(self, progress: Progress) -> bool:
        """Return whether patience is at its end."""
        return self.enabled and progress.n_flat >= self.patience
