"""Choice of breeding operators by what they have gained.

``optimization.meta_optimizer``. A sampler that breeds holds a ``MetaOptimizer``, or ``None``, by which nothing is learned and the pool is
the fixed one. What it learns lies in the sampler's memory, so it is journaled with each generation and a
resumed run makes the same choices.
"""

from convergence_core.search.meta_optimizer.credit import OperatorCredit
from convergence_core.search.meta_optimizer.gains import (
    META_KEY,
    GenerationGains,
    MetaOptimizer,
)

__all__ = ["META_KEY", "GenerationGains", "MetaOptimizer", "OperatorCredit"]
