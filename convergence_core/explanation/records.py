"""Records of an explanation; plain values that a result keeps."""

from dataclasses import dataclass
from typing import Literal

LEVEL = 0.9
"""Probability behind intervals of effects and shares."""
ERROR = 0.05
"""Probability that any effect of a run is called sure where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectPoint:
    """One value of a parameter, whatever the other parameters are."""

    label: str
    x: float | None
    """The value; ``None`` for choices."""
    mean: float
    """Posterior mean reward at this value, averaged over the other parameters."""
    low: float
    high: float
    """Ends of the interval of ``mean`` less the average over all values, drawn around ``mean``: what
    is unsure of the average itself is left out, since it is the same for every value."""
    n_candidates: int
    """Candidates asked whose value is this one, or nearest to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Effect of one parameter on the reward, by the posterior over the whole space.

    Not over the candidates asked, which crowd where rewards are high: over a fixed sample of the
    other parameters, in which nothing moves along.
    """

    parameter: str
    kind: Literal["number", "choice"]
    log: bool = False
    """Whether the parameter's scale is logarithmic."""
    points: tuple[EffectPoint, ...]
    share: float
    """Of the variance between configurations, explained by this parameter alone; posterior mean."""
    share_low: float
    """Lower end of its interval; 0 where ``is_sure`` is false."""
    share_high: float
    average: float
    """Mean reward over the space, where the parameter is active; posterior mean. The points' means
    are this and the effect."""
    share_active: float = 1.0
    """Share of the space in which the parameter is active; the effect is that within it."""
    is_sure: bool = False
    """Whether no effect at all lies outside of what the posterior holds likely, at an error of 5 %
    over all parameters together."""
    level: float = LEVEL
    """Probability behind the intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterInteraction:
    """Effect of two parameters together, beyond the sum of their single effects."""

    parameters: tuple[str, str]
    share: float
    """Of the variance between configurations; posterior mean."""
    low: float
    """0 where ``is_sure`` is false."""
    high: float
    is_sure: bool
    """As of ``Effect``, at an error of 5 % over all pairs looked at."""
    labels: tuple[str, str]
    """The two values that depart most from the sum."""
    effect: float
    """Reward by which they do; posterior mean."""
    effect_low: float
    effect_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """Posterior of the space as a whole."""

    average: float
    """Mean reward of a configuration drawn at random; posterior mean."""
    average_low: float
    average_high: float
    sd: float
    """Standard deviation of mean rewards between configurations; posterior mean."""
    share_single: float
    """Of their variance, explained by single parameters; posterior mean."""
    share_own: float
    """Of their variance, what a configuration has beyond its place in the space."""
    n_pairs: int
    """Pairs of parameters that were looked at."""
    interactions: tuple[ParameterInteraction, ...] = ()
    """The strongest pairs, sure or not, strongest first."""
    level: float = LEVEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """An eliminated candidate."""

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
    """Eliminated candidates, as the evidence stands at the end."""

    bound: float
    """Probability of being above the leader below which a candidate is eliminated."""
    error: float
    """Largest probability that any eliminated candidate lies above the leader."""
    n_candidates: int
    """With a reward."""
    n_left: int
    """Below the bound."""
    n_waiting: int
    """Above the bound, but not among the first ``n_elites`` by posterior mean."""
    n_elites: int
    left_by_cells: tuple[tuple[int, int], ...] = ()
    """(cells, candidates eliminated with so many), fewest cells first."""
    closest: tuple[Discard, ...] = ()
    """Those eliminated with the highest probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Explanation but for the effects of single parameters, which a result keeps as ``effects``."""

    surface: Surface | None = None
    """``None`` means nothing in the space varies."""
    discards: Discards | None = None
    """``None`` if the algorithm eliminates none."""
