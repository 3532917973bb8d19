"""How much more is said of leaders than they show when they are asked again.

Whoever leads is partly lucky. A posterior that is right about its prior has taken that luck away; one
whose tails are too wide, as normal ones of bounded rewards are, has not. Leaders are asked again,
and by then it is written down what was believed of them (prequential forecasts, Dawid 1984):

    believed_i - shown_i = zeta sd_i + error,    Var(error) = sd_i^2 + noise_i

zeta, in posterior standard deviations, is the optimism: least squares, drawn to 0 by a standard
normal prior. It would be 0 of a posterior that is right, however candidates are chosen. Claims are
lowered by it and their intervals widened by its own error; who is chosen owes nothing to it.

Where cells tell the noise, leaders are candidates that had been asked before: of others nobody knew
their own effect. Where there is one case and the process learns the noise, few are asked again, and
newcomers of whom as much was believed count as well.

Notation: i are leaders, noise_i the variance that chance gives the mean of their new cells.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from convergence_core.posterior.space_model import FittedSpaceModel
from convergence_core.records import Json
from convergence_core.search.archive import Archive

MEMORY_KEY = "optimism"
"""Where a sampler's memory keeps what generations showed."""
N_LEADERS = 5
"""Candidates, best posterior means first, whose new answers count: claims are made of leaders."""


@dataclass(frozen=True, slots=True)
class SelectionBias:
    """Sums of weighted least squares over leaders that were asked again."""

    cross: float = 0.0
    """Sum of (believed - shown) sd / variance."""
    square: float = 0.0
    """Sum of sd^2 / variance."""

    @classmethod
    def shown(
        cls, before: FittedSpaceModel, archive: Archive, after: FittedSpaceModel, told: Archive
    ) -> "SelectionBias":
        """Return what a generation showed; nothing, where several cases do not tell the noise.

        Args:
            before: what was believed before the generation, of the cases of ``after``.
            archive: the evidence behind it.
            after: what is believed since.
            told: the evidence behind that.
        """
        then, now = before.learned, after.learned
        if then is None or now is None:
            return cls()
        is_measured = then.effects.is_measured and now.effects.is_measured
        old, new = then.evidence, now.evidence
        if not is_measured and len(new.case_ids) > 1:
            return cls()
        newcomers = () if is_measured else (name for name in new.ids if name not in archive)
        ids = (*old.ids, *newcomers)
        beliefs = before.posterior([told.members[name].candidate for name in ids])
        leaders = np.argsort(-beliefs.mean, kind="stable")[:N_LEADERS]
        rows = after.rows([ids[i] for i in leaders])
        leaders, rows = leaders[rows >= 0], rows[rows >= 0]
        was_asked = leaders < len(old.ids)
        count = new.count[rows]  # of new rewards, (n_leaders, n_cases)
        rewards = count * new.mean[rows]
        before_count = old.count[leaders[was_asked]]
        count[was_asked] -= before_count
        rewards[was_asked] -= before_count * old.mean[leaders[was_asked]]
        asked = count.sum(axis=1) > 0
        leaders, rows, count, rewards = leaders[asked], rows[asked], count[asked], rewards[asked]
        mean, sd = beliefs.mean[leaders], beliefs.sd[leaders]
        if is_measured:
            shown, noise = now.effects.alone(new, rows, count, rewards)
        else:
            n = count.sum(axis=1)
            shown = rewards.sum(axis=1) / n
            noise = then.process.noise / n
            noise[leaders >= len(old.ids)] += then.process.own_variance  # nobody knew it
            noise /= then.warp.slope(mean) ** 2
        weight = sd / (sd**2 + noise)
        return cls(cross=float(weight @ (mean - shown)), square=float(weight @ sd))

    @classmethod
    def of_memory(cls, memory: Mapping[str, Json]) -> "SelectionBias":
        """Return what all generations of a sampler's memory showed together."""
        return sum(_kept(memory).values(), cls())

    def noted(self, memory: Mapping[str, Json], generation: int) -> dict[str, Json]:
        """Return a sampler's memory with what this generation showed."""
        return _keeping(memory, {**_kept(memory), generation: self})

    def __add__(self, other: "SelectionBias") -> "SelectionBias":
        """Return both together."""
        return SelectionBias(self.cross + other.cross, self.square + other.square)

    @property
    def zeta(self) -> float:
        """Posterior standard deviations by which claims are too high, at least 0."""
        return max(0.0, self.cross / (self.square + 1.0))

    @property
    def widening(self) -> float:
        """Factor of the width of intervals that knows the error of ``zeta``, at least 1.

        1 where nobody was asked again: then nothing is corrected.
        """
        return 1.0 if self.square == 0.0 else (1.0 + 1.0 / (self.square + 1.0)) ** 0.5


def until(memory: Mapping[str, Json], generation: int) -> dict[str, Json]:
    """Return a sampler's memory as if later generations had shown nothing."""
    kept = _kept(memory)
    return _keeping(memory, {g: shown for g, shown in kept.items() if g <= generation})


def _keeping(memory: Mapping[str, Json], shown: Mapping[int, SelectionBias]) -> dict[str, Json]:
    rows: list[Json] = [[g, one.cross, one.square] for g, one in sorted(shown.items())]
    return {**memory, MEMORY_KEY: rows}


def _kept(memory: Mapping[str, Json]) -> dict[int, SelectionBias]:
    rows = memory.get(MEMORY_KEY)
    if not isinstance(rows, list):
        return {}
    return {
        int(_number(row[0])): SelectionBias(_number(row[1]), _number(row[2]))
        for row in rows
        if isinstance(row, list) and len(row) == 3
    }


def _number(value: Json) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
