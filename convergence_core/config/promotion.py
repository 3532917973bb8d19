"""``promotion``: what it takes for a candidate to become the champion."""

from typing import Literal

from pydantic import Field

from convergence_core.config.base import Section


class PromotionConfig(Section):
    """When the candidate handed over may replace the champion."""

    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Largest probability of promoting what is not ahead, however often one looks."""
    mode: Literal["paired"] = "paired"
    """How they are compared: on the same held-out cases."""
    min_effect: float = Field(default=0.0, ge=0, lt=1)
    """Least difference in mean reward that is worth a promotion."""
    require_adoption: bool = True
    """Whether a person has to adopt it by `convergence promote`; `false`: a run whose gate says
    promote makes its candidate the champion."""
