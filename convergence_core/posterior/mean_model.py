"""Surrogate of another quantity: a Gaussian process on candidates' plain means.

The surrogate of the reward, ``space_model``, reads cells. Other quantities (a metric, the share of
cells that satisfy the constraints) are stored as sums only. So candidates are compared by plain
means, and case difficulty counts as noise. The noise of a cell is the pooled variance within
candidates,

    variance = sum_i (squares_i - n_i mean_i^2) / sum_i (n_i - 1)                                  (1)

If each candidate has a single cell, the process learns the noise.
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
"""Minimum degrees of freedom for the variance within candidates to count as measured."""
MIN_VARIANCE = 1e-6
"""Minimum variance of a cell, in squared units of a number in [0, 1]."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Means:
    """Means of one quantity over the cells of n candidates."""

    candidates: tuple[Candidate, ...]
    mean: np.ndarray
    """Mean of each candidate, (n,)."""
    count: np.ndarray
    """Cells per mean, at least 1, (n,)."""
    variance: float | None
    """Variance of one cell within its candidate; ``None`` if too few cells determine it."""

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
        """Return the number of candidates."""
        return len(self.candidates)

    def take(self, rows: np.ndarray) -> "Means":
        """Return these candidates, with the variance of all."""
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
        """Fit at least one candidate; of very many, the newer half and a spread half.

        Args:
            encoding: Encoding of the space.
            means: Means of the quantity.
            start: Log hyper-parameters of an earlier fit. ``None``, or those of another kernel,
                mean the prior's medians.
            start_steps: Optimizer iterations from ``start``.
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
        """Return the joint posterior at these points; an empty id is a new candidate."""
        return WarpedPosterior(
            ids=tuple(ids),
            process=self.process,
            warp=self.warp,
            points=points,
            rows=np.array([self.row.get(name, -1) for name in ids], dtype=np.intp),
            bounds=(0.0, 1.0),
        )
