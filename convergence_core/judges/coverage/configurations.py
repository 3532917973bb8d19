"""How much of the search space was looked at: occupied share of a grid.

Choices have a cell per value, numbers four per parameter; a parameter that is not active has one of its
own. What was proposed and what was evaluated are counted apart: the first may be wide while the second
is narrow.
"""

import math
from collections.abc import Iterable
from typing import Final

from convergence_core.records import Params
from convergence_core.space import Choice, Space

N_BINS: Final = 4


def configuration_coverage(space: Space, candidates: Iterable[Params]) -> float:
    """Return the share of the grid's cells that candidates fall into, in [0, 1]."""
    sizes = []
    for parameter in space.parameters.values():
        n = parameter.n_values
        bins = n if isinstance(parameter, Choice) else min(N_BINS, N_BINS if n is None else n)
        sizes.append((bins or 1) + bool(parameter.when))
    occupied = {_cell(space, params) for params in candidates}
    return len(occupied) / math.prod(sizes) if sizes else 0.0


def _cell(space: Space, params: Params) -> tuple[int, ...]:
    cell = []
    for name, parameter in space.parameters.items():
        if name not in params:
            cell.append(-1)
        elif isinstance(parameter, Choice):
            cell.append(parameter.index(params[name]))
        else:
            cell.append(min(N_BINS - 1, int(parameter.to_unit(params[name]) * N_BINS)))
    return tuple(cell)
