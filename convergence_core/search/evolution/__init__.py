"""How children come to be: one at a time (``operators``), or as a pool of hundreds (``pool``)."""

from convergence_core.search.evolution.operators import (
    Breeder,
    crossover,
    fresh,
    mutate,
    rank_selection,
    tournament,
)
from convergence_core.search.evolution.pool import Pool, PoolBreeder

__all__ = [
    "Breeder",
    "Pool",
    "PoolBreeder",
    "crossover",
    "fresh",
    "mutate",
    "rank_selection",
    "tournament",
]
