"""Schedule of a run's cells: of each generation, and of the final re-estimation.

A run that is capped in calls spreads them evenly over its generations, and keeps a share for the
final re-estimation: a search that leaves nothing to check its own winner with would end in a claim
that no one can trust.
"""

import math
from dataclasses import dataclass

FINAL_SHARE = 0.3
"""Most of a capped budget that the final re-estimation may keep back."""
N_AGAIN = 4
"""Repeats beyond the configured ones that leaders and finalists may be asked where there is one case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Settings of a run in numbers of cells and calls."""

    n_generations: int
    population_size: int
    n_search_cases: int
    n_holdout_cases: int
    repeats: int = 1
    deterministic: bool = False
    """Whether a cell that is asked again gets the same reward."""
    cases_per_candidate: int | None = None
    """``None`` means a generation may hold all search cases for each of its candidates."""
    max_calls: int | None = None
    """Cap on calls of the whole run, those of judges included; ``None`` means no cap."""
    one_by_one: bool = False
    """Whether each cell is planned on the evidence of all before it, not each generation."""
    calls_per_cell: int = 1
    """Calls that one cell needs: its own, and those of judges."""
    n_champions: int = 0
    """Candidates that pairwise judges compare with; each answers every case that is asked, once."""
    n_champions_apart: int = 0
    """Those of them that the final re-estimation does not ask by itself."""
    has_baseline: bool = False
    has_champion: bool = False
    """Whether a champion other than the defaults is re-estimated in the end."""

    @property
    def n_again(self) -> int:
        """Repeats beyond ``repeats`` that the search may ask of leaders and finalists.

        Of several cases none: they tell the noise.
        """
        return 0 if self.deterministic or self.n_search_cases > 1 else N_AGAIN

    @property
    def full_generation(self) -> int:
        """Cells of a generation that no budget limits."""
        per_candidate = self.cases_per_candidate or self.n_search_cases * self.repeats
        return self.population_size * per_candidate

    def n_batches(self, n_cells: int) -> int:
        """Return the number of batches of a generation with ``n_cells`` cells, at least 1."""
        return max(1, n_cells) if self.one_by_one else 1

    @property
    def n_subjects(self) -> int:
        """Candidates that the final re-estimation may have to ask."""
        return 1 + self.has_baseline + self.has_champion

    @property
    def n_holdout_cells(self) -> int:
        """Held-out cells of one final subject that no budget limits: each case, with its repeats."""
        return self.n_holdout_cases * (1 if self.deterministic else self.repeats)

    def final_quota(self) -> tuple[int, int]:
        """Return the held-out and the fresh cells of each final subject: winner, defaults, champion.

        All get the same cases; held-out ones come first.
        """
        holdout = self.n_holdout_cells
        fresh = 0 if self.deterministic else self.n_search_cases
        if self.max_calls is not None:
            kept = int(FINAL_SHARE * self.max_calls)
            # Champions have answered the search cases by then.
            per_fresh = self.n_subjects * self.calls_per_cell
            per_holdout = per_fresh + self.n_champions_apart
            holdout = min(holdout, kept // per_holdout)
            fresh = min(fresh, (kept - holdout * per_holdout) // per_fresh)
        return holdout, fresh

    @property
    def final_calls(self) -> int:
        """Calls that the final re-estimation may need, retries left out."""
        n_holdout, n_fresh = self.final_quota()
        of_cells = (n_holdout + n_fresh) * self.n_subjects * self.calls_per_cell
        return of_cells + min(n_holdout, self.n_holdout_cases) * self.n_champions_apart

    @property
    def champion_calls(self) -> int:
        """Calls beside those of cells: answers of champions to all cases, at most."""
        return self.n_champions * (self.n_search_cases + self.n_holdout_cases)

    def final_shortage(self) -> str | None:
        """Return why the final re-estimation gets no cell at all; ``None`` if it gets some.

        In words without a full stop, with the cap from which on it gets one case.
        """
        wants_none = self.deterministic and not self.n_holdout_cases
        if self.max_calls is None or wants_none or any(self.final_quota()):
            return None
        needed = self.n_subjects * self.calls_per_cell
        least = math.ceil(needed / FINAL_SHARE)
        least += int(FINAL_SHARE * least) < needed  # 0.3 is a little less than it says
        others = ("the defaults",) * self.has_baseline + ("the champion",) * self.has_champion
        subjects = " and ".join((", ".join(("the winner", *others[:-1])), *others[-1:]))
        judged = ", answers and judges" if self.calls_per_cell > 1 else ""
        return (
            f"budget.max_calls={self.max_calls} reserves {int(FINAL_SHARE * self.max_calls)} "
            f"for the final test, but one case of {subjects} takes {needed}{judged}; "
            f"{least:,} would suffice"
        )

    def capacity(self, generation: int, calls_used: int) -> int:
        """Return the cells that a generation may ask; 0: the budget is spent.

        Args:
            generation: number of the generation to plan, from 0.
            calls_used: calls of the run before it, retries included.
        """
        if self.max_calls is None:
            return self.full_generation
        # After the first generation the champions have answered nearly all cases.
        n_new = self.n_search_cases if generation == 0 else 0
        left = self._cells_for(self.max_calls - calls_used - self.final_calls, n_new)
        generations_left = max(1, self.n_generations - generation)
        fair_share = -(-left // generations_left)
        return max(0, min(self.full_generation, fair_share, left))

    def is_used_up(self, n_calls: int) -> bool:
        """Whether ``max_calls`` are made, and it left less to ask than is configured."""
        if self.max_calls is None or n_calls < self.max_calls:
            return False
        n_final = self.n_holdout_cells + self.n_search_cases
        n_search = self.n_generations * self.full_generation
        return self.planned_cells() < n_search or sum(self.final_quota()) < n_final

    def planned_cells(self) -> int:
        """Return the search cells of all generations at most."""
        total = self.n_generations * self.full_generation
        if self.max_calls is None:
            return total
        cells = self._cells_for(self.max_calls - self.final_calls, self.n_search_cases)
        return min(total, max(0, cells))

    def _cells_for(self, n_calls: int, n_new: int) -> int:
        """Return the cells that so many calls pay for; champions have yet to answer new cases."""
        with_champions = self.calls_per_cell + self.n_champions
        if n_calls < n_new * with_champions:
            return n_calls // with_champions
        return (n_calls - n_new * self.n_champions) // self.calls_per_cell
