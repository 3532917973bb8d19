"""Which cells deserve the next evaluations: who competes (``field``), who gets them (``race``)."""

from convergence_core.search.racing.cell_allocation import CellAllocation
from convergence_core.search.racing.competitors import Competitors, Rules

__all__ = ["CellAllocation", "Competitors", "Rules"]
