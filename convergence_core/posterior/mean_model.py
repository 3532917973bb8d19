"""Surrogate of a further number: a Gaussian process on each candidate's own mean.

The reward has its surrogate in ``space_model``, which reads cells. Of other numbers (a metric, the
share of cells that keep the constraints) only sums are kept, so candidates are compared by plain
means and a case's own difficulty counts as noise. The noise of a cell is the variance within
candidates, pooled,

    variance = sum_i (squares_i - n_i mean_i^2) / sum_i (n_i - 1)                                  (1)

where each has a single cell it is learned with the process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convergence_core.evidence import Archive, total_of
from convergence_core.posterior.gaussian_process import FREE_NOISE, MEASURED_NOISE, GaussianProcess
from convergence_core.posterior.kernel import Kernel
from convergence_core.posterior.space_model import MAX_ROWS, N_STEPS
from convergence_core.posterior.warped_posterior import Warp, WarpedPosterior
from convergence_core.records import Candidate
from convergence_core.space.arrays import Encoding, Points

MIN_DOF = 10
"""Degrees of freedom from which on the variance within candidates counts as measured."""
MIN_VARIANCE = 1e-6
"""Of one cell, in squared units of a number in [0, 1]."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Means:
    """Means of one quantity over the cells of n candidates."""

    candidates: tuple[Candidate, ...]
    mean: np.ndarray
    """(n,)."""
    count: np.ndarray
    """Cells behind each mean, at least 1, (n,)."""
    variance: float | None
    """Of one cell within its candidate; ``None`` if too few cells tell."""

    @classmethod
    def gather(cls, archive: Archive, name: str) -> "Means":
        """Collect a quantity from the tallies of an archive."""
        sums = [(member.candidate, total_of(member.tallies, name)) for member in archive]
        seen = [(candidate, moments) for candidate, moments in sums if moments[0]]
        rows = np.array([moments for _, moments in seen], dtype=np.float64).reshape(-1, 3)
        count, total, squares = rows.T
        mean = total / np.maximum(count, 1.0)
        within, dof = float((squares - count * mean**2).sum()), float((count - 1.0).sum())
        return cls(
            candidates=tuple(candidate for candidate, _ in seen),
            mean=mean,
            count=count,
            variance=max(within / dof, MIN_VARIANCE) if dof >= MIN_DOF else None,  # (eq. 1)
        )

    def __len__(self) -> int:
        """Candidates."""
        return len(self.candidates)

    def take(self, rows: np.ndarray) -> "Means":
        """Return these candidates; the variance stays that of all."""
        return replace(
            self,
            candidates=tuple(self.candidates[i] for i in rows),
            mean=self.mean[rows],
            count=self.count[rows],
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FittedMeans:
    """Fitted surrogate of one number."""

    process: GaussianProcess
    warp: Warp
    row: Mapping[str, int]
    """Candidate → training row."""

    @classmethod
    def fit(
        cls,
        encoding: Encoding,
        means: Means,
        *,
        start: Sequence[float] | None = None,
        start_steps: int = 0,
    ) -> "FittedMeans":
        """Learn from at least one candidate; of very many, the newer half and a spread half.

        Args:
            encoding: of the space.
            means: of the quantity.
            start: log hyper-parameters of an earlier fit to begin at; ``None``, or of another
                kernel: the prior's medians.
            start_steps: iterations of the optimizer from there.
        """
        n = len(means)
        if n > MAX_ROWS:
            half = MAX_ROWS // 2
            spread = np.linspace(0, n - 1, MAX_ROWS - half).round().astype(np.intp)
            means = means.take(np.unique(np.concatenate([np.arange(n - half, n), spread])))
        is_measured = means.variance is not None
        kernel = Kernel.of(encoding, has_nugget=is_measured or not encoding.number_names)
        errors = (1.0 if means.variance is None else means.variance) / means.count
        least = float(np.median(np.sqrt(errors))) if is_measured else 0.0
        warp = Warp.learn(means.mean, guess=0.25, least=least)
        slope = warp.slope(means.mean) if is_measured else np.ones(len(means))
        is_known = start is not None and len(start) == len(kernel.prior_mean) + 1
        process = GaussianProcess.fit(
            kernel,
            encoding.encode([candidate.params for candidate in means.candidates]),
            warp.forward(means.mean),
            np.diag(slope * errors * slope),
            noise=MEASURED_NOISE if is_measured else FREE_NOISE,
            start=np.array(start, dtype=np.float64) if is_known else None,
            n_steps=start_steps if is_known else N_STEPS,
        )
        row = {candidate.candidate_id: i for i, candidate in enumerate(means.candidates)}
        return cls(process=process, warp=warp, row=row)

    def posterior_at(self, ids: Sequence[str], points: Points) -> WarpedPosterior:
        """Return the joint posterior of candidates at these points; an empty id is no one's."""
        return WarpedPosterior(
            ids=tuple(ids),
            process=self.process,
            warp=self.warp,
            points=points,
            rows=np.array([self.row.get(name, -1) for name in ids], dtype=np.intp),
            bounds=(0.0, 1.0),
        )
