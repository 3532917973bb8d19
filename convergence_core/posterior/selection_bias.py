"""Correction of claims about leaders for selection bias, the winner's curse.

A leader is partly lucky. A posterior with the right prior corrects that luck; one with too wide
tails, such as a normal one of bounded rewards, does not. Later evaluations of leaders test their
recorded posterior (prequential forecasts, Dawid 1984):

    posterior mean_i - observed_i = zeta sd_i + error,    Var(error) = sd_i^2 + noise_i            (1)
    zeta = max(0, cross / (square + 1))                                                            (2)
    cross = sum_i (posterior mean_i - observed_i) sd_i / Var_i,    square = sum_i sd_i^2 / Var_i   (3)

zeta, in posterior standard deviations, is the bias: least squares, shrunk to 0 by a standard
normal prior. For a correct posterior its expectation is 0 under any choice of candidates. Claims
are lowered by zeta, and their intervals widened by its error (4); the choice of candidates ignores
it.

If cells show the noise, leaders are candidates with earlier rewards, since the individual effects
of others were unknown. With one case and learned noise, few candidates are evaluated again, so new
ones of equal posterior mean count as well.

Notation: i are leaders, noise_i the variance of the mean of their new cells due to chance.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from convergence_core.evidence import Archive
from convergence_core.posterior.space_model import FittedSpaceModel
from convergence_core.records import Json

MEMORY_KEY = "optimism"
"""Key of the sums by generation in a sampler's memory, as in earlier versions."""
N_LEADERS = 5
"""Number of candidates with the best posterior means whose new rewards count."""


@dataclass(frozen=True, slots=True)
class SelectionBias:
    """Sums of weighted least squares over leaders with new rewards (eq. 3)."""

    cross: float = 0.0
    square: float = 0.0

    @classmethod
    def of_generation(
        cls, before: FittedSpaceModel, earlier: Archive, after: FittedSpaceModel, archive: Archive
    ) -> "SelectionBias":
        """Return the sums of a generation; 0 with several cases and unmeasured noise.

        Args:
            before: Fit before the generation, on the cases of ``after``.
            earlier: Evidence of ``before``.
            after: Fit after the generation.
            archive: Evidence of ``after``.
        """
        old, new = before.learned, after.learned
        if old is None or new is None:
            return cls()
        is_measured = old.effects.is_measured and new.effects.is_measured
        if not is_measured and len(new.evidence.case_ids) > 1:
            return cls()
        n_old = len(old.evidence.ids)
        added = () if is_measured else (name for name in new.evidence.ids if name not in earlier)
        ids = (*old.evidence.ids, *added)
        posterior = before.posterior([archive.members[name].candidate for name in ids])
        leaders = np.argsort(-posterior.mean, kind="stable")[:N_LEADERS]
        rows = after.rows([ids[i] for i in leaders])
        leaders, rows = leaders[rows >= 0], rows[rows >= 0]
        count = new.evidence.count[rows]  # of new rewards, (n_leaders, n_cases)
        rewards = count * new.evidence.mean[rows]
        was_asked = leaders < n_old
        before_count = old.evidence.count[leaders[was_asked]]
        count[was_asked] -= before_count
        rewards[was_asked] -= before_count * old.evidence.mean[leaders[was_asked]]
        kept = count.sum(axis=1) > 0
        leaders, rows, count, rewards = leaders[kept], rows[kept], count[kept], rewards[kept]
        mean, sd = posterior.mean[leaders], posterior.sd[leaders]
        if is_measured:
            observed, noise = new.effects.alone(new.evidence, rows, count, rewards)
        else:
            n = count.sum(axis=1)
            observed = rewards.sum(axis=1) / n
            noise = old.process.noise / n
            noise[leaders >= n_old] += old.process.nugget_variance  # unknown before
            noise /= old.warp.slope(mean) ** 2
        weight = sd / (sd**2 + noise)  # (eq. 1)
        return cls(cross=float(weight @ (mean - observed)), square=float(weight @ sd))

    @classmethod
    def of_memory(cls, memory: Mapping[str, Json]) -> "SelectionBias":
        """Return the total over all generations in a sampler's memory."""
        sums = _by_generation(memory).values()
        return cls(
            sum((bias_sum.cross for bias_sum in sums), 0.0),
            sum((bias_sum.square for bias_sum in sums), 0.0),
        )

    def noted(self, memory: Mapping[str, Json], generation: int) -> dict[str, Json]:
        """Return a sampler's memory with these sums added to those of a generation."""
        sums = _by_generation(memory)
        earlier = sums.get(generation, SelectionBias())
        sums[generation] = SelectionBias(self.cross + earlier.cross, self.square + earlier.square)
        rows: list[Json] = [
            [g, bias_sum.cross, bias_sum.square] for g, bias_sum in sorted(sums.items())
        ]
        return {**memory, MEMORY_KEY: rows}

    @property
    def zeta(self) -> float:
        """Bias of claims in posterior standard deviations, at least 0."""
        return max(0.0, self.cross / (self.square + 1.0))  # (eq. 2)

    @property
    def widening(self) -> float:
        """Factor of the width of intervals due to the error of ``zeta``, at least 1.

        1 without new rewards of leaders, since claims then stay uncorrected.
        """
        return 1.0 if self.square == 0.0 else (1.0 + 1.0 / (self.square + 1.0)) ** 0.5  # (eq. 4)


def _by_generation(memory: Mapping[str, Json]) -> dict[int, SelectionBias]:
    rows = memory.get(MEMORY_KEY)
    return {
        int(_number(row[0])): SelectionBias(_number(row[1]), _number(row[2]))
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, list) and len(row) == 3
    }


def _number(value: Json) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
