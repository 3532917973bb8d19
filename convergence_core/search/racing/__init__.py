"""Racing of candidates (``competitors``) for cells (``cell_allocation``)."""

from convergence_core.search.racing.cell_allocation import CellAllocation
from convergence_core.search.racing.competitors import Competitors, Rules

__all__ = ["CellAllocation", "Competitors", "Rules"]
