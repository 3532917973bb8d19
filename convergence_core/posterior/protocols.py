"""The contract of posteriors: joint draws over candidates, asked before or not."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from convergence_core.records import Candidate
from convergence_core.search.archive import Archive


class Posterior(Protocol):
    """Joint distribution of some candidates' mean rewards over the search cases."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Candidate ids, in the order of every array."""
        ...

    @property
    def mean(self) -> np.ndarray:
        """Posterior means, (n_members,)."""
        ...

    @property
    def sd(self) -> np.ndarray:
        """Posterior standard deviations, (n_members,)."""
        ...

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of central credible intervals within [0, 1], (n_members,) each."""
        ...

    def draws(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return joint draws, (n, n_members)."""
        ...

    def probability_within(
        self, rng: np.random.Generator, n: int, *, index: int, delta: float
    ) -> float:
        """Return the share of draws with this member at most ``delta`` below the highest."""
        ...


class Fitted(Protocol):
    """A surrogate that has seen the evidence."""

    def posterior(self, candidates: Sequence[Candidate]) -> Posterior:
        """Return the joint posterior of these candidates, seen or unseen."""
        ...


class Surrogate(Protocol):
    """A model of mean rewards."""

    def fit(
        self,
        archive: Archive,
        *,
        case_ids: Sequence[str] | None = None,
        case_weights: Mapping[str, float] | None = None,
    ) -> Fitted:
        """Learn from an archive.

        Args:
            archive: the evidence; not changed.
            case_ids: the cases whose mean counts; ``None``: those weighted or seen.
            case_weights: case → positive weight; absent ones weigh 1.
        """
        ...
