"""Records of an explanation, stored in a result."""

from dataclasses import dataclass
from typing import Literal

LEVEL = 0.9
"""Level of the intervals of effects and shares."""
ERROR = 0.05
"""Probability that any null effect of a run is called significant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectPoint:
    """Mean reward at one value of a parameter, over all other parameters."""

    label: str
    x: float | None
    """Numeric value; ``None`` for choices."""
    mean: float
    """Posterior mean reward at this value, averaged over the other parameters."""
    low: float
    high: float
    """Ends of the interval of ``mean`` minus the average over all values, centred on ``mean``.
    They exclude the uncertainty of the average, which is the same for every value."""
    n_candidates: int
    """Evaluated candidates with this value, or nearest to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Effect of one parameter on the reward, from the posterior over the whole space.

    Evaluated candidates cluster at high rewards. So the effect is averaged over a fixed sample of
    the other parameters, in which parameters are uncorrelated.
    """

    parameter: str
    kind: Literal["number", "choice"]
    log: bool = False
    """Whether the parameter's scale is logarithmic."""
    points: tuple[EffectPoint, ...]
    share: float
    """Share of the variance between configurations explained by this parameter alone; posterior
    mean."""
    share_low: float
    """Lower end of the share's interval; 0 unless ``is_sure``."""
    share_high: float
    average: float
    """Mean reward over the space where the parameter is active; posterior mean. Each point's mean
    is this plus the effect."""
    share_active: float = 1.0
    """Share of the space with an active parameter; the effect is restricted to it."""
    is_sure: bool = False
    """Whether the effect is significant, at a level of 5 % over all parameters together."""
    level: float = LEVEL
    """Level of the intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterInteraction:
    """Effect of two parameters together, beyond the sum of their single effects."""

    parameters: tuple[str, str]
    share: float
    """Share of the variance between configurations; posterior mean."""
    low: float
    """Lower end of the share's interval; 0 unless ``is_sure``."""
    high: float
    is_sure: bool
    """Whether it is significant, at a level of 5 % over all tested pairs."""
    labels: tuple[str, str]
    """Two values that deviate most from the sum of single effects."""
    effect: float
    """Deviation of their reward from that sum; posterior mean."""
    effect_low: float
    effect_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """Posterior of the whole space."""

    average: float
    """Mean reward of a random configuration; posterior mean."""
    average_low: float
    average_high: float
    sd: float
    """Standard deviation of mean rewards between configurations; posterior mean."""
    share_single: float
    """Share of their variance explained by single parameters; posterior mean."""
    share_own: float
    """Share of their variance due to individual effects of configurations."""
    n_pairs: int
    """Number of tested parameter pairs."""
    interactions: tuple[ParameterInteraction, ...] = ()
    """Strongest pairs, significant or not, strongest first."""
    level: float = LEVEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """Eliminated candidate."""

    candidate_id: str
    label: str
    mean: float
    low: float
    high: float
    n_cells: int
    probability: float
    """Posterior probability of a higher mean reward than the leader's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discards:
    """Eliminated candidates at the end of the run."""

    bound: float
    """Probability of beating the leader below which a candidate is eliminated."""
    error: float
    """Maximum probability that any eliminated candidate beats the leader."""
    n_candidates: int
    """Number of candidates with a reward."""
    n_left: int
    """Number of candidates below the bound."""
    n_waiting: int
    """Candidates above the bound but not among the first ``n_elites`` by posterior mean."""
    n_elites: int
    left_by_cells: tuple[tuple[int, int], ...] = ()
    """(cells, number of candidates eliminated with that many cells), fewest cells first."""
    closest: tuple[Discard, ...] = ()
    """Eliminated candidates with the highest probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Explanation without effects of single parameters, stored as ``RunResult.effects``."""

    surface: Surface | None = None
    """``None`` if nothing in the space varies."""
    discards: Discards | None = None
    """``None`` if the algorithm eliminates no candidate."""
