"""Evolution of candidates: one child, and pools."""

from convergence_core.search.evolution.operators import Breeder, fresh
from convergence_core.search.evolution.pool import Pool, PoolBreeder

__all__ = ["Breeder", "Pool", "PoolBreeder", "fresh"]
