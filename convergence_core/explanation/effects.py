"""Effects of single parameters and of pairs, from draws of the fitted surface.

The surface is decomposed as in functional analysis of variance (Hutter, Hoos & Leyton-Brown 2014).
A parameter's effect is the mean reward at one of its values over all other parameters, minus the
overall mean (1). A pair's effect is the rest beyond both single effects (2). A share is the
variance of an effect relative to that of the space (3). Means are over fixed spread settings of
the space (a Latin hypercube, so that pairs hardly leak into single effects), in which parameters
are uncorrelated. Every joint draw of the surface is decomposed as a whole, so an interval is that
of the effect itself.

A parameter with conditions is averaged over settings where it is active; its share counts only
that part. If constraints exclude combinations, effects come from a two-way fit (``fits``), which
is exact for additive effects. An effect is significant (``fits.is_sure``) at a level of 5 %,
divided by the number of tested effects. The lower end of a share that is not significant is 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from convergence_core.explanation.fits import (
    TINY,
    Combinations,
    column_effects,
    ends_of,
    is_sure,
    mean_share,
)
from convergence_core.explanation.records import (
    ERROR,
    LEVEL,
    Effect,
    EffectPoint,
    ParameterInteraction,
    Surface,
)
from convergence_core.explanation.settings import Levels, SettingSampler
from convergence_core.posterior.gaussian_process import matrix_root
from convergence_core.posterior.space_model import FittedEvidence, FittedSpaceModel
from convergence_core.records import Params
from convergence_core.space import Choice, Float, Integer

N_DRAWS = 128
"""Draws of the surface, each used with both signs."""
JITTER = 1e-8
"""Jitter of the draws' covariance, as a share of its largest variance."""
N_SETTINGS = 384
"""Settings for the variance between configurations."""
N_ROWS = 576
"""Settings times values for the effect of a parameter or pair."""
MIN_SETTINGS, MAX_SETTINGS = 12, 48
"""Minimum and maximum settings in the average of an effect."""
MAX_SCREENED = 12
"""Maximum parameters, by interaction under the posterior mean, whose pairs are screened."""
MAX_PAIRS = 6
"""Maximum screened pairs whose effects are drawn."""
N_PAIR_LEVELS = 5
"""Maximum values of each parameter of a pair."""


def cut(
    fitted: FittedSpaceModel, evaluated: Sequence[Params], rng: np.random.Generator
) -> tuple[tuple[Effect, ...], Surface] | None:
    """Return the effects of all parameters, by decreasing share, and their surface.

    Args:
        fitted: Surrogate with its evidence.
        evaluated: Points of the evaluated candidates, which are counted by value.
        rng: Generator for the sample of the space and the draws of the surface.

    Returns:
        Effects and surface, or ``None`` without a reward or a parameter that can vary.
    """
    settings = SettingSampler(encoding=fitted.model.encoding)
    varying = [j for j, levels in enumerate(settings.levels) if len(levels.values) > 1]
    if fitted.learned is None or not varying:
        return None
    surface = _DrawnSurface(
        fitted=fitted,
        learned=fitted.learned,
        settings=settings,
        sample=settings.sample(N_SETTINGS, rng),
        rng=rng,
    )
    whole = surface.distribution()
    singles = [surface.single(j) for j in varying]
    effects_drawn = [single for single in singles if single is not None]
    effects = [
        surface.effect(single, whole, evaluated, len(effects_drawn)) for single in effects_drawn
    ]
    by_interaction = sorted(effects_drawn, key=lambda effect: -effect.interaction)[:MAX_SCREENED]
    screened = sorted(effect.column for effect in by_interaction)
    n_pairs = math.comb(len(screened), 2)
    interactions = [
        interaction
        for pair in surface.strongest(list(combinations(screened, 2)))
        if (interaction := surface.interaction(pair, whole, n_pairs)) is not None
    ]
    order = np.argsort([-effect.share for effect in effects], kind="stable")
    single = sum((single.variance for single in effects_drawn), start=np.zeros(1)) / whole.variance
    described = replace(
        whole.described(),
        share_single=mean_share(single),
        n_pairs=n_pairs,
        interactions=tuple(sorted(interactions, key=lambda drawn: -drawn.share)),
    )
    return tuple(effects[i] for i in order), described


@dataclass(frozen=True, slots=True, eq=False)
class _Distribution:
    """Distribution of rewards over the space, for S draws."""

    mean: np.ndarray
    """Mean rewards, (S,)."""
    expected: np.ndarray
    """Posterior mean rewards of the settings, (N_SETTINGS,)."""
    genes: np.ndarray
    """Genes of the settings, NaN if inactive, (N_SETTINGS, n_dims)."""
    smooth: np.ndarray
    """Variance without candidates' individual effects, (S,)."""
    variance: np.ndarray
    """Variance including individual effects, (S,)."""

    def described(self) -> Surface:
        """Return its record, without parameters and pairs."""
        low, high = ends_of(self.mean)
        return Surface(
            average=float(self.mean.mean()),
            average_low=float(low),
            average_high=float(high),
            sd=float(np.sqrt(self.variance).mean()),
            share_single=0.0,
            share_own=mean_share(np.maximum(1.0 - self.smooth / self.variance, 0.0)),
            n_pairs=0,
            level=LEVEL,
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Single:
    """Effect of one parameter, for S draws."""

    column: int
    levels: Levels
    drawn: np.ndarray
    """Drawn effects, (n_levels, S)."""
    share_active: float
    variance: np.ndarray
    """Variance that the effect explains in the whole space, (S,)."""
    interaction: float
    """Variance along the parameter that differs between settings, for the posterior mean."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _DrawnSurface:
    """Fitted surface with its draws."""

    fitted: FittedSpaceModel
    learned: FittedEvidence
    settings: SettingSampler
    sample: np.ndarray
    """Settings, (N_SETTINGS, n_dims)."""
    rng: np.random.Generator
    designs: dict[int, np.ndarray] = field(default_factory=dict)
    """Number of settings → spread settings, drawn on first use."""

    def rewards(self, warped: np.ndarray) -> np.ndarray:
        """Return the rewards at warped values, any shape."""
        rewards = self.learned.warp.backward(warped)
        bounds = self.fitted.model.bounds
        return rewards if bounds is None else np.clip(rewards, *bounds)

    def distribution(self) -> _Distribution:
        """Return the distribution of rewards over the space."""
        genes = self.settings.express(self.sample)
        mean, drawn = self._at(genes)
        sd = math.sqrt(self.learned.process.nugget_variance)
        own_drawn = sd * self.rng.standard_normal(drawn.shape)
        smooth = self._both(mean, drawn)
        rough = self._both(mean, drawn + own_drawn)
        return _Distribution(
            mean=smooth.mean(axis=0),
            expected=smooth.mean(axis=1),
            genes=genes,
            smooth=smooth.var(axis=0),
            variance=np.maximum(rough.var(axis=0), TINY),
        )

    def single(self, column: int) -> _Single | None:
        """Return the effect of a parameter; ``None`` if it can never change alone."""
        levels = self.settings.levels[column]
        n = int(np.clip(N_ROWS // len(levels.values), MIN_SETTINGS, MAX_SETTINGS))
        genes, keeps, share_active = self._active([column], [levels.genes], n)
        tells = keeps.sum(axis=1) >= 2  # one permitted value allows no comparison
        genes, keeps = genes[tells], keeps[tells]
        there = np.asarray(keeps.any(axis=0))
        if there.sum() < 2:
            return None
        levels = _taken(levels, there)
        genes, keeps = genes[:, there], keeps[:, there]
        mean, drawn = self._at(genes.reshape(-1, genes.shape[-1]))
        values = self._both(mean, drawn).reshape(*keeps.shape, -1)
        effect = column_effects(values, keeps, levels.weights)
        # Interaction: the part of the posterior mean that differs between settings.
        expected = self.rewards(mean).reshape(keeps.shape)
        middle = column_effects(expected[..., None], keeps, levels.weights)[:, 0]
        of_row = (expected * keeps).sum(axis=1) / np.maximum(keeps.sum(axis=1), 1)
        rest = (expected - of_row[:, None] - middle) * keeps
        return _Single(
            column=column,
            levels=levels,
            drawn=effect,
            share_active=share_active,
            variance=share_active * (levels.weights @ effect**2),
            interaction=share_active * float((rest**2).sum() / keeps.sum()),
        )

    def effect(
        self, single: _Single, whole: _Distribution, evaluated: Sequence[Params], n: int
    ) -> Effect:
        """Return the record of one of n parameters."""
        name = self.settings.encoding.names[single.column]
        parameter = single.levels.parameter
        is_choice = isinstance(parameter, Choice)
        sure = is_sure(single.drawn, single.levels.weights, ERROR / n)
        shares = np.minimum(single.variance / whole.variance, 1.0)
        low, high = ends_of(shares)
        counts = np.zeros(len(single.levels.values), dtype=np.intp)
        for params in evaluated:
            if name in params:
                to_gene = parameter.index if isinstance(parameter, Choice) else parameter.to_unit
                counts[single.levels.nearest(to_gene(params[name]))] += 1
        average = float(whole.expected[~np.isnan(whole.genes[:, single.column])].mean())
        ends = np.stack(ends_of(single.drawn), axis=1)  # (n_levels, 2)
        return Effect(
            parameter=name,
            kind="choice" if is_choice else "number",
            log=isinstance(parameter, Float | Integer) and parameter.log,
            points=tuple(
                EffectPoint(
                    label=parameter.show(value),
                    x=None if is_choice else float(value),
                    mean=average + float(drawn.mean()),
                    low=average + float(end[0]),
                    high=average + float(end[1]),
                    n_candidates=int(count),
                )
                for value, drawn, end, count in zip(
                    single.levels.values, single.drawn, ends, counts, strict=True
                )
            ),
            share=float(shares.mean()),
            share_low=float(low) if sure else 0.0,
            share_high=float(high),
            average=average,
            share_active=single.share_active,
            is_sure=sure,
            level=LEVEL,
        )

    def strongest(self, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the pairs with the largest interactions under the posterior mean."""
        candidates = []
        for pair in pairs:
            grid = self._grid(pair, n_settings=MIN_SETTINGS, n_levels=4)
            if grid is not None:
                places = self.settings.encoding.places(grid.genes)
                mean, _ = self.learned.process.marginals(places, np.full(len(grid.genes), -1))
                drawn = grid.cells.interaction(self.rewards(mean)[:, None])
                candidates.append(
                    (float(grid.cells.weights @ drawn[:, 0] ** 2) * grid.share_active, pair)
                )
        candidates.sort(key=lambda candidate: -candidate[0])
        return [pair for _, pair in candidates[:MAX_PAIRS]]

    def interaction(
        self, pair: tuple[int, int], whole: _Distribution, n_pairs: int
    ) -> ParameterInteraction | None:
        """Return the record of one of ``n_pairs`` pairs."""
        grid = self._grid(pair, n_settings=MAX_SETTINGS // 2, n_levels=N_PAIR_LEVELS)
        if grid is None:
            return None
        drawn = grid.cells.interaction(self._both(*self._at(grid.genes)))
        sure = is_sure(drawn, grid.cells.weights, ERROR / n_pairs)
        variance = grid.share_active * (grid.cells.weights @ drawn**2)
        shares = np.minimum(variance / whole.variance, 1.0)
        low, high = ends_of(shares)
        most = int(np.argmax(np.abs(drawn.mean(axis=1))))
        effect_low, effect_high = ends_of(drawn[most])
        names = self.settings.encoding.names
        return ParameterInteraction(
            parameters=(names[pair[0]], names[pair[1]]),
            share=float(shares.mean()),
            low=float(low) if sure else 0.0,
            high=float(high),
            is_sure=sure,
            labels=grid.labels[most],
            effect=float(drawn[most].mean()),
            effect_low=float(effect_low),
            effect_high=float(effect_high),
        )

    # -- helpers -----------------------------------------------------------------------------

    def _at(self, genes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior mean, (n,), and draws of the deviation from it, (n, N_DRAWS).

        Both are warped and exclude candidates' individual effects.
        """
        places = self.settings.encoding.places(genes)
        mean, covariance = self.learned.process.joint(places, np.full(len(genes), -1))
        root = matrix_root(covariance, jitter=JITTER * float(covariance.max()) + TINY)
        return mean, root @ self.rng.standard_normal((len(genes), N_DRAWS))

    def _both(self, mean: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """Return the rewards of the draws with both signs, (n, 2 N_DRAWS)."""
        signed = np.concatenate([drawn, -drawn], axis=1)
        return self.rewards(mean[:, None] + signed)

    def _active(
        self, columns: Sequence[int], levels: Sequence[np.ndarray], n: int
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Return ``SettingSampler.varied`` of up to n settings with active columns.

        The third value is the share of all settings in which the columns are active.
        """
        probe = self.sample
        if len(columns) == 1:
            # With an explicit value of the parameter, check where it is active.
            probe = self.sample.copy()
            probe[:, columns[0]] = levels[0][0]
        there = ~np.isnan(self.settings.express(probe)[:, list(columns)]).any(axis=1)
        if there.all():
            if n not in self.designs:
                self.designs[n] = self.settings.sample(n, self.rng)
            chosen = self.designs[n]
        else:
            chosen = self.sample[there][:n]
        share = float(there.mean())
        genes, keeps = self.settings.varied(chosen, columns, levels)
        some = keeps.any(axis=1)
        return genes[some], keeps[some], share

    def _grid(self, pair: tuple[int, int], *, n_settings: int, n_levels: int) -> "_Grid | None":
        levels = [self.settings.levels[j].some(n_levels) for j in pair]
        genes, keeps, share = self._active(pair, [level.genes for level in levels], n_settings)
        if not len(genes):
            return None
        # Combinations permitted by half of the settings, and the settings that permit all of
        # these.
        cells = keeps.mean(axis=0) >= 0.5
        rows = keeps[:, cells].all(axis=1)
        if rows.sum() < MIN_SETTINGS // 2:
            return None
        combinations = Combinations.of(cells, (levels[0].weights, levels[1].weights))
        if combinations is None:
            return None
        return _Grid(
            genes=genes[rows][:, cells].reshape(-1, genes.shape[-1]),
            cells=combinations,
            labels=[
                (
                    levels[0].parameter.show(levels[0].values[i]),
                    levels[1].parameter.show(levels[1].values[j]),
                )
                for i, j in zip(combinations.first, combinations.second, strict=True)
            ],
            share_active=share,
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Grid:
    """Combinations of two parameters' values in several settings."""

    genes: np.ndarray
    """Genes of settings by combinations, (n_settings * n_cells, n_dims)."""
    cells: Combinations
    labels: list[tuple[str, str]]
    share_active: float


def _taken(levels: Levels, there: np.ndarray) -> Levels:
    weights = levels.weights[there]
    return Levels(
        levels.parameter,
        tuple(value for value, is_there in zip(levels.values, there, strict=True) if is_there),
        levels.genes[there],
        weights / weights.sum(),
    )
