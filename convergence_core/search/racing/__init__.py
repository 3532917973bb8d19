"""Racing: competitors for cells (``competitors``), and their allocation."""

from convergence_core.search.racing.cell_allocation import CellAllocation
from convergence_core.search.racing.competitors import Competitors, Rules

__all__ = ["CellAllocation", "Competitors", "Rules"]
