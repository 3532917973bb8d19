"""What cost-aware draws are worth, on random targets whose models cost up to fifty times another.

python -m benchmarks.cost_aware --seeds 100
"""

from collections.abc import Callable

import numpy as np

from benchmarks.machine import options
from benchmarks.tables import header, row, with_error
from benchmarks.warm_start import draw_effects, value_of
from convergence_core.records import Params
from convergence_core.search.goals import CostAwareSettings
from tests.support.priced_problem import SPACE, handed_over, prices, search

FIRST_SEED = 1000
"""None of those that settings were chosen on."""
LIMITS = {"$2.5": 2.5, "$6": 6.0, "none": 1e9}
"""Money of a whole search; ten generations of 80 cells without a limit."""
Value = Callable[[Params], float]


def target(seed: int, *, dear_is_good: bool) -> Value:
    """Return a random target; models may be the better the dearer."""
    effects = dict(draw_effects(np.random.default_rng([seed, 1])))
    if dear_is_good:
        names = list(SPACE.parameters["model"].choices)  # type: ignore[attr-defined]  # a choice
        price = prices(seed)
        rank = np.argsort(np.argsort([price[name] for name in names]))
        effects["model"] = np.sort(effects["model"])[rank]
    return value_of(effects)


def regret(value: Value, seed: int, chosen: Params) -> float:
    """Return the normalized regret x 100: 0 is best, 100 a median random candidate."""
    rng = np.random.default_rng([seed, 9])
    known = np.array([value(SPACE.sample(rng)) for _ in range(4000)])
    best, middle = known.max(), np.median(known)
    return float(100.0 * (best - value(chosen)) / (best - middle))


def main() -> None:
    """Print the table of docs/samplers.md."""
    n_seeds = options(__doc__, seeds=100).seeds
    names = ("prices", "limit", "regret", "with cost", "cells", "with cost", "spent")
    print(header(*names, "with cost"))
    for dear_is_good in (False, True):
        for name, budget in LIMITS.items():
            rows = []
            for seed in range(FIRST_SEED, FIRST_SEED + n_seeds):
                value = target(seed, dear_is_good=dear_is_good)
                both = []
                for costs in (None, CostAwareSettings(per="usd")):
                    state, world = search(costs, seed, value=value, budget=budget)
                    n_cells = sum(member.n for member in state.archive)
                    both += [regret(value, seed, handed_over(state)), n_cells, world.spent]
                rows.append(both)
            mean = np.mean(rows, axis=0)
            gaps = [both[3] - both[0] for both in rows]
            kind = "dearer is better" if dear_is_good else "unrelated"
            cells = (
                f"{mean[0]:.1f}",
                with_error(gaps, "+.1f"),
                f"{mean[1]:.0f}",
                f"{mean[4]:.0f}",
            )
            print(row(kind, name, *cells, f"${mean[2]:.2f}", f"${mean[5]:.2f}"), flush=True)


if __name__ == "__main__":
    main()
