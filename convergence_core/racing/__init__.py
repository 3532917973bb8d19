"""Which cells deserve the next evaluations: who competes (``field``), who gets them (``race``)."""

from convergence_core.racing.field import Field, Rules
from convergence_core.racing.race import Race

__all__ = ["Field", "Race", "Rules"]
