"""How many cells each generation may ask, and how many are kept back for the end.

A run that is capped in calls spreads what it has evenly over its generations, and keeps a share
for the final re-estimation: a search that leaves nothing to check its own winner with would end
in a claim nobody can trust.
"""

from dataclasses import dataclass

FINAL_SHARE = 0.3
"""Most of a capped budget that the final re-estimation may keep back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalQuota:
    """Cells that each final subject (winner, default) gets; the same cases for both."""

    n_holdout: int
    n_fresh: int

    @property
    def n_cells(self) -> int:
        """Cells of one subject."""
        return self.n_holdout + self.n_fresh


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The plan of a run in numbers of cells."""

    n_generations: int
    population_size: int
    n_search_cases: int
    n_holdout_cases: int
    repeats: int = 1
    cases_per_candidate: int | None = None
    """``None``: a generation may hold all search cases for each of its candidates."""
    max_calls: int | None = None
    """Cap on calls of the whole run, those of judges included; ``None``: no cap."""
    calls_per_cell: int = 1
    """Calls that one cell needs: its own, and those of judges."""
    has_baseline: bool = False
    has_champion: bool = False
    """Whether a champion other than the defaults is looked at in the end."""

    @property
    def full_generation(self) -> int:
        """Cells of a generation that no budget narrows."""
        per_candidate = self.cases_per_candidate or self.n_search_cases * self.repeats
        return self.population_size * per_candidate

    @property
    def n_subjects(self) -> int:
        """Candidates that the final re-estimation may have to look at."""
        return 1 + self.has_baseline + self.has_champion

    def final_quota(self) -> FinalQuota:
        """Return the cells of each final subject: held-out cases first, then fresh repeats."""
        holdout, fresh = self.n_holdout_cases, self.n_search_cases
        if self.max_calls is not None:
            each = int(FINAL_SHARE * self.max_calls) // (self.n_subjects * self.calls_per_cell)
            holdout = min(holdout, each)
            fresh = min(fresh, each - holdout)
        return FinalQuota(n_holdout=holdout, n_fresh=fresh)

    def capacity(self, generation: int, calls_used: int) -> int:
        """Return the cells that a generation may ask; 0 when the budget is spent.

        Args:
            generation: number of the generation to plan, from 0.
            calls_used: calls of the run before it, retries included.
        """
        if self.max_calls is None:
            return self.full_generation
        reserve = self.final_quota().n_cells * self.n_subjects
        left = (self.max_calls - calls_used) // self.calls_per_cell - reserve
        generations_left = max(1, self.n_generations - generation)
        fair_share = -(-left // generations_left)
        return max(0, min(self.full_generation, fair_share, left))

    def planned_cells(self) -> int:
        """Return the search cells of all generations at most."""
        total = self.n_generations * self.full_generation
        if self.max_calls is None:
            return total
        reserve = self.final_quota().n_cells * self.n_subjects
        return min(total, max(0, self.max_calls // self.calls_per_cell - reserve))
