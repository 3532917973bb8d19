"""The surrogate of a further number: a process over the space, on each candidate's own mean.

The reward has its surrogate in ``space_model``, which reads cells. Of other numbers (a metric, the
share of cells that keep the constraints) only sums are kept, so candidates are compared by plain
means and a case's own difficulty counts as noise. The noise of a cell is the variance within
candidates, pooled; where each has a single cell it is learned with the process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convergence_core.posterior.gaussian_process import GaussianProcess
from convergence_core.posterior.kernel import Layout
from convergence_core.posterior.warp import Warp
from convergence_core.posterior.warped_posterior import WarpedBeliefs
from convergence_core.records import Candidate
from convergence_core.search.archive import Archive, Member
from convergence_core.search.tallies import total_of
from convergence_core.space.encoding import Encoding, Points

MAX_ROWS = 300
"""Candidates that a process is trained on: its cost grows with their cube."""
MIN_DOF = 10
"""Degrees of freedom from which on the variance within candidates counts as measured."""
LEAST_VARIANCE = 1e-6
"""Of one cell, in squared units of a number in [0, 1]."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Means:
    """One quantity of n candidates."""

    candidates: tuple[Candidate, ...]
    mean: np.ndarray
    """(n,)."""
    count: np.ndarray
    """Cells behind each mean, at least 1, (n,)."""
    variance: float | None
    """Of one cell within its candidate; ``None``: too few cells tell."""

    @classmethod
    def gather(cls, archive: Archive, name: str) -> "Means":
        """Collect a quantity from the tallies of an archive."""
        sums = [(member, total_of(member.tallies, name)) for member in archive]
        seen: list[tuple[Member, tuple[int, float, float]]] = [
            (member, found) for member, found in sums if found[0]
        ]
        count = np.array([n for _, (n, _, _) in seen], dtype=np.float64)
        total = np.array([total for _, (_, total, _) in seen], dtype=np.float64)
        squares = np.array([squares for _, (_, _, squares) in seen], dtype=np.float64)
        mean = total / np.maximum(count, 1.0)
        dof = float((count - 1.0).sum())
        within = max(float((squares - count * mean**2).sum()), 0.0)
        return cls(
            candidates=tuple(member.candidate for member, _ in seen),
            mean=mean,
            count=count,
            variance=max(within / dof, LEAST_VARIANCE) if dof >= MIN_DOF else None,
        )

    def __len__(self) -> int:
        """Candidates."""
        return len(self.candidates)

    def take(self, rows: np.ndarray) -> "Means":
        """Return these candidates; the variance stays that of all."""
        return Means(
            candidates=tuple(self.candidates[i] for i in rows),
            mean=self.mean[rows],
            count=self.count[rows],
            variance=self.variance,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanModel:
    """Settings of the surrogate."""

    encoding: Encoding
    max_rows: int = MAX_ROWS
    """Of more candidates, the newer half and a spread half are kept."""
    bounds: tuple[float, float] | None = (0.0, 1.0)
    """Where the number lies; ``None``: anywhere."""
    n_steps: int = 25
    """Iterations of the optimizer of hyper-parameters."""

    def fit(
        self, means: Means, *, start: Sequence[float] | None = None, start_steps: int = 0
    ) -> "FittedMeans":
        """Learn from at least one candidate.

        Args:
            means: of the quantity.
            start: log hyper-parameters of an earlier fit to begin at; ``None``, or of another
                layout: the prior's medians.
            start_steps: iterations of the optimizer from there.
        """
        n = len(means)
        if n > self.max_rows:
            half = self.max_rows // 2
            spread = np.linspace(0, n - 1, self.max_rows - half).round().astype(np.intp)
            means = means.take(np.unique(np.concatenate([np.arange(n - half, n), spread])))
        is_measured = means.variance is not None
        layout = Layout.of(self.encoding, own_effect=is_measured or not self.encoding.number_names)
        errors = (1.0 if means.variance is None else means.variance) / means.count
        least = float(np.median(np.sqrt(errors))) if is_measured else 0.0
        warp = Warp.learn(means.mean, guess=0.25, least=least)
        slope = warp.slope(means.mean) if is_measured else np.ones(len(means))
        is_known = start is not None and len(start) == layout.size + 1
        process = GaussianProcess.fit(
            layout,
            self.encoding.distances,
            self.encoding.encode([candidate.params for candidate in means.candidates]),
            warp.forward(means.mean),
            np.diag(slope * errors * slope),
            known_noise=is_measured,
            start=np.array(start, dtype=np.float64) if is_known else None,
            n_steps=start_steps if is_known else self.n_steps,
        )
        ids = (candidate.candidate_id for candidate in means.candidates)
        return FittedMeans(
            process=process,
            warp=warp,
            row={name: i for i, name in enumerate(ids)},
            bounds=self.bounds,
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FittedMeans:
    """The surrogate of one number with what it learned."""

    process: GaussianProcess
    warp: Warp
    row: Mapping[str, int]
    """Candidate → training row."""
    bounds: tuple[float, float] | None

    def beliefs(self, ids: Sequence[str], places: Points) -> WarpedBeliefs:
        """Return the joint posterior of candidates at these places; an empty id is nobody's."""
        return WarpedBeliefs(
            ids=tuple(ids),
            process=self.process,
            warp=self.warp,
            places=places,
            rows=np.array([self.row.get(name, -1) for name in ids], dtype=np.intp),
            bounds=self.bounds,
        )
