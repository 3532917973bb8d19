"""Which cells deserve the next evaluations: who competes (``field``), who gets them (``race``)."""

from convergence_core.search.racing.cell_allocation import Race
from convergence_core.search.racing.competitors import Field, Rules

__all__ = ["Field", "Race", "Rules"]
