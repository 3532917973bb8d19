"""The ledger's arithmetic: tokens, prices, and what may still be spent."""

from convergence_core.budget.bounds import prompt_bound
from convergence_core.budget.limits import (
    Budget,
    Exhausted,
    Limits,
    Reservation,
    Spent,
    Wait,
)
from convergence_core.budget.phrases import LimitName, dollars
from convergence_core.budget.prices import Price, PriceTable, provider_of
from convergence_core.budget.usage import usage_of

__all__ = [
    "Budget",
    "Exhausted",
    "LimitName",
    "Limits",
    "Price",
    "PriceTable",
    "Reservation",
    "Spent",
    "Wait",
    "dollars",
    "prompt_bound",
    "provider_of",
    "usage_of",
]
