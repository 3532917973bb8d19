"""Schedule of a run's cells: for each generation and for the final test.

A run with a cap on calls spreads them evenly over its generations and reserves a share for the
final test, without which its result could not be verified.
"""

import math
from dataclasses import dataclass

FINAL_SHARE = 0.3
"""Maximum share of a capped budget that the final test may reserve."""
N_AGAIN = 4
"""Additional repeats of leaders and finalists if there is only one case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Size of a run in cells and calls."""

    n_generations: int
    population_size: int
    n_search_cases: int
    n_holdout_cases: int
    repeats: int = 1
    deterministic: bool = False
    """Whether a repeated cell gets the same reward."""
    cases_per_candidate: int | None = None
    """``None`` means that each candidate of a generation may get all search cases."""
    max_calls: int | None = None
    """Maximum calls of the whole run, including judges; ``None`` means no cap."""
    one_by_one: bool = False
    """Whether each cell is planned after the preceding cell's reward, not each generation."""
    calls_per_cell: int = 1
    """Calls per cell, including judges."""
    n_champions: int = 0
    """Opponents of pairwise judges; each answers every evaluated case once."""
    n_champions_apart: int = 0
    """Those of them that are not subjects of the final test."""
    has_baseline: bool = False
    has_champion: bool = False
    """Whether a champion other than the defaults takes part in the final test."""

    @property
    def n_again(self) -> int:
        """Repeats beyond ``repeats`` for leaders and finalists.

        0 with several cases, since these already show the noise.
        """
        return 0 if self.deterministic or self.n_search_cases > 1 else N_AGAIN

    @property
    def full_generation(self) -> int:
        """Cells of a generation without a budget limit."""
        per_candidate = self.cases_per_candidate or self.n_search_cases * self.repeats
        return self.population_size * per_candidate

    def n_batches(self, n_cells: int) -> int:
        """Return the number of batches of a generation with ``n_cells`` cells, at least 1."""
        return max(1, n_cells) if self.one_by_one else 1

    @property
    def n_subjects(self) -> int:
        """Maximum number of candidates in the final test."""
        return 1 + self.has_baseline + self.has_champion

    @property
    def n_holdout_cells(self) -> int:
        """Held-out cells per final subject without a budget limit, including repeats."""
        return self.n_holdout_cases * (1 if self.deterministic else self.repeats)

    def final_quota(self) -> tuple[int, int]:
        """Return the numbers of held-out and of fresh cells per final subject.

        All subjects get the same cases; held-out ones come first.
        """
        holdout = self.n_holdout_cells
        fresh = 0 if self.deterministic else self.n_search_cases
        if self.max_calls is not None:
            kept = int(FINAL_SHARE * self.max_calls)
            # The opponents answered the search cases during the search.
            per_fresh = self.n_subjects * self.calls_per_cell
            per_holdout = per_fresh + self.n_champions_apart
            holdout = min(holdout, kept // per_holdout)
            fresh = min(fresh, (kept - holdout * per_holdout) // per_fresh)
        return holdout, fresh

    @property
    def final_calls(self) -> int:
        """Maximum calls of the final test, without retries."""
        n_holdout, n_fresh = self.final_quota()
        of_cells = (n_holdout + n_fresh) * self.n_subjects * self.calls_per_cell
        return of_cells + min(n_holdout, self.n_holdout_cases) * self.n_champions_apart

    @property
    def champion_calls(self) -> int:
        """Maximum calls for the opponents' answers, which come on top of those of cells."""
        return self.n_champions * (self.n_search_cases + self.n_holdout_cases)

    def final_shortage(self) -> str | None:
        """Return why the final test gets no cell, or ``None`` if it gets some.

        The reason has no full stop and names the smallest cap that allows one case.
        """
        wants_none = self.deterministic and not self.n_holdout_cases
        if self.max_calls is None or wants_none or any(self.final_quota()):
            return None
        needed = self.n_subjects * self.calls_per_cell
        least = math.ceil(needed / FINAL_SHARE)
        least += int(FINAL_SHARE * least) < needed  # as a float, 0.3 is slightly below 3/10
        others = ("the defaults",) * self.has_baseline + ("the champion",) * self.has_champion
        subjects = " and ".join((", ".join(("the winner", *others[:-1])), *others[-1:]))
        judged = ", answers and judges" if self.calls_per_cell > 1 else ""
        return (
            f"budget.max_calls={self.max_calls} reserves {int(FINAL_SHARE * self.max_calls)} "
            f"for the final test, but one case of {subjects} takes {needed}{judged}; "
            f"{least:,} would suffice"
        )

    def capacity(self, generation: int, calls_used: int) -> int:
        """Return the maximum cells of a generation; 0 if the budget is used up.

        Args:
            generation: Number of the generation to plan, from 0.
            calls_used: Calls of the run so far, including retries.
        """
        if self.max_calls is None:
            return self.full_generation
        # After the first generation the opponents have answered nearly all cases.
        n_new = self.n_search_cases if generation == 0 else 0
        left = self._cells_for(self.max_calls - calls_used - self.final_calls, n_new)
        generations_left = max(1, self.n_generations - generation)
        fair_share = -(-left // generations_left)
        return max(0, min(self.full_generation, fair_share, left))

    def is_used_up(self, n_calls: int) -> bool:
        """Return whether all ``max_calls`` are used and allowed fewer cells than configured."""
        if self.max_calls is None or n_calls < self.max_calls:
            return False
        n_final = self.n_holdout_cells + self.n_search_cases
        n_search = self.n_generations * self.full_generation
        return self.planned_cells() < n_search or sum(self.final_quota()) < n_final

    def planned_cells(self) -> int:
        """Return the maximum number of search cells of all generations."""
        total = self.n_generations * self.full_generation
        if self.max_calls is None:
            return total
        cells = self._cells_for(self.max_calls - self.final_calls, self.n_search_cases)
        return min(total, max(0, cells))

    def _cells_for(self, n_calls: int, n_new: int) -> int:
        """Return the cells that ``n_calls`` pay for; opponents first answer ``n_new`` cases."""
        with_champions = self.calls_per_cell + self.n_champions
        if n_calls < n_new * with_champions:
            return n_calls // with_champions
        return (n_calls - n_new * self.n_champions) // self.calls_per_cell
