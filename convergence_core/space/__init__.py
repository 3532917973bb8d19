"""Search space: parameters, conditions, constraints and identity."""

from convergence_core.records import same_value
from convergence_core.space.parameters import Choice, Float, Integer, Parameter, When, same_params
from convergence_core.space.space import Space

__all__ = [
    "Choice",
    "Float",
    "Integer",
    "Parameter",
    "Space",
    "When",
    "same_params",
    "same_value",
]
