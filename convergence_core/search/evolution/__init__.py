"""Evolution of candidates: one child, pools, and mixes of operators."""

from convergence_core.search.evolution.operators import (
    OPERATORS,
    Breeder,
    BreedingMix,
    fresh,
    operator_of,
)
from convergence_core.search.evolution.pool import BreedingStyle, Pool, PoolBreeder

__all__ = [
    "OPERATORS",
    "Breeder",
    "BreedingMix",
    "BreedingStyle",
    "Pool",
    "PoolBreeder",
    "fresh",
    "operator_of",
]
