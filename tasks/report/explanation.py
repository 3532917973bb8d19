"""Why this one was chosen, in blocks: parameters, pairs, the cells that decided, who left."""

from convergence_core.explanation.records import ERROR, Discards, Effect, RivalComparison, Surface
from convergence_core.result import RunResult
from convergence_core.visualization import Visualization
from tasks.report import phrases
from tasks.report.blocks import Block, Code, Grid, Heading, Inline, Paragraph, Plots
from tasks.report.phrases import clean, named_label, percent, plural, short
from tasks.report.plots import has_plot

MAX_ROWS = 100
"""Rows shown of a long table."""


def explanation_blocks(result: RunResult, wanted: frozenset[Visualization]) -> list[Block]:
    """Return the sections that explain a recommendation."""
    found = result.explanation
    blocks = _parameters(result, wanted)
    if found is None:
        return blocks
    if found.surface is not None and found.surface.n_pairs:
        blocks += _pairs(found.surface)
    if found.comparisons or found.spent:
        blocks += [Heading("Which cells decided")]
        for comparison in found.comparisons:
            blocks += _comparison(comparison)
        blocks += _spent(result)
    if found.discards is not None and found.discards.n_candidates > 1:
        blocks += _discards(found.discards)
    return blocks


# -- parameters


def _parameters(result: RunResult, wanted: frozenset[Visualization]) -> list[Block]:
    effects = [effect for effect in result.effects if len(effect.points) > 1]
    if not effects:
        return []
    told = [effect for effect in effects if effect.share is not None]
    blocks: list[Block] = [Heading("What the parameters do")]
    if told:
        blocks.append(Paragraph((_about_effects(result, told),), "note"))
    shows = "parameter_effects" in wanted and has_plot(result, "parameter_effects")
    if shows and has_plot(result, "shares"):
        blocks.append(Plots(("shares",)))
    if told:
        blocks.append(_shares(told))
    if shows:
        caption = (
            "Bands and bars: the interval of the difference to the average, which is dashed. "
            "Hollow dots: values near which no configuration was asked. Numbers: configurations "
            "asked. Grey: not surely different from no effect at all."
        )
        blocks += [Plots(("parameter_effects",)), Paragraph((caption,), "caption")]
    return [*blocks, _values(effects)]


def _about_effects(result: RunResult, effects: list[Effect]) -> str:
    said = (
        "The mean reward that the model of the search expects at each value, averaged over a fixed "
        f"sample of the other parameters, with {percent(effects[0].level)} intervals of the "
        "difference to the average over all values. It is the model's account of the whole space, "
        "also where little was asked. "
    )
    surface = None if result.explanation is None else result.explanation.surface
    if surface is not None:
        said += (
            f"A configuration drawn at random earns "
            f"{phrases.interval(surface.average, surface.average_low, surface.average_high)}; "
            f"their standard deviation is {phrases.reward(surface.sd)}. Of the variance, single "
            f"parameters explain {_percent(surface.share_single)}, and {_percent(surface.share_own)} "
            "belongs to single configurations alone. "
        )
    n_sure = sum(effect.is_sure for effect in effects)
    return said + (
        f"Surely more than no effect at all, at an error of {percent(ERROR)} over all of them: "
        f"{n_sure} of {plural(len(effects), 'parameter')}."
    )


def _shares(effects: list[Effect]) -> Grid:
    rows: list[tuple[Inline, ...]] = []
    for effect in effects[:MAX_ROWS]:
        highest = max(effect.points, key=lambda point: point.mean)
        rows.append(
            (
                Code(clean(effect.parameter)),
                _share(effect.share, effect.share_low, effect.share_high),
                "yes" if effect.is_sure else "no",
                short(highest.label),
                phrases.interval(highest.mean, highest.low, highest.high),
                _percent(effect.share_active),
            )
        )
    columns = (
        "parameter",
        "share of variance",
        "sure",
        "highest at",
        "expected mean reward there",
        "active in",
    )
    return Grid(columns, tuple(rows), frozenset({1, 4, 5}))


def _values(effects: list[Effect]) -> Grid:
    rows: list[tuple[Inline, ...]] = [
        (
            Code(clean(effect.parameter)),
            clean(point.label),
            phrases.interval(point.mean, point.low, point.high),
            str(point.n_candidates),
        )
        for effect in effects
        for point in effect.points
    ]
    folded = "Parameters in numbers"
    if len(rows) > MAX_ROWS:
        folded = f"Parameters in numbers, the first {MAX_ROWS} of {len(rows):,} rows"
    columns = ("parameter", "value", "expected mean reward", "configurations")
    return Grid(columns, tuple(rows[:MAX_ROWS]), frozenset({2, 3}), folded=folded)


# -- pairs


def _pairs(surface: Surface) -> list[Block]:
    n_sure = sum(pair.is_sure for pair in surface.interactions)
    looked = f"{plural(surface.n_pairs, 'pair')} looked at"
    if n_sure:
        said = (
            "What two parameters do together, beyond the sum of what each does alone: "
            f"{plural(n_sure, 'pair')} surely, at an error of {percent(ERROR)} over {looked}."
        )
    else:
        said = (
            "No pair of parameters surely does anything together beyond the sum of what each does "
            f"alone, at an error of {percent(ERROR)} over {looked}."
        )
    blocks: list[Block] = [Heading("Which parameters interact"), Paragraph((said,), "note")]
    rows: list[tuple[Inline, ...]] = [
        (
            " with ".join(clean(name) for name in pair.parameters),
            _share(pair.share, pair.low, pair.high),
            "yes" if pair.is_sure else "no",
            ", ".join(short(label, 40) for label in pair.labels),
            _signed(pair.effect, pair.effect_low, pair.effect_high),
        )
        for pair in surface.interactions
    ]
    if rows:
        columns = ("pair", "share of variance", "sure", "most at", "beyond the sum there")
        folded = "" if n_sure else "The strongest pairs, none of them sure"
        blocks.append(Grid(columns, tuple(rows), frozenset({1, 4}), folded=folded))
    return blocks


# -- cells


def _comparison(found: RivalComparison) -> list[Block]:
    name = "default" if found.rival == "default" else "runner-up"
    label = named_label(found.label, found.rival_id)
    said = f"The recommended configuration beside the {name}, {label}: "
    if found.gap is None:
        said += "they share no test case, so the model alone compares them"
    else:
        said += (
            f"of {plural(found.n_shared, 'test case')} asked of both, its reward is higher on "
            f"{found.n_above}, equal on {found.n_equal} and lower on {found.n_below}, by "
            f"{phrases.signed(found.gap)} in the mean over these cases, as measured in the search"
        )
    said += (
        f"; the posterior probability that its mean reward is higher is "
        f"{percent(found.probability)}."
    )
    blocks: list[Block] = [Paragraph((said,))]
    if found.cases and found.n_shared > 1:
        rows: list[tuple[Inline, ...]] = [
            (Code(short(gap.case_id)), phrases.signed(gap.gap), phrases.signed(gap.share))
            for gap in found.cases
        ]
        columns = ("test case", "difference of rewards", "its part in the mean")
        folded = f"The {plural(len(rows), 'test case')} with the largest part, {name}"
        blocks.append(Grid(columns, tuple(rows), frozenset({1, 2}), folded=folded))
    return blocks


def _spent(result: RunResult) -> list[Block]:
    leading = () if result.explanation is None else result.explanation.spent
    if not leading or result.n_search_cases < 2:
        return []
    told = [
        ", ".join(f"{generation}: {n:,}" for generation, n in one.by_generation) for one in leading
    ]
    rows: list[tuple[Inline, ...]] = [
        (
            named_label(one.label, one.candidate_id),
            f"{sum(n for _, n in one.by_generation):,}",
            cells,
        )
        for one, cells in zip(leading, told, strict=True)
    ]
    said = "The leading configurations' cells, by the generation that first asked them, from 0:"
    columns = ("configuration", "cells", "generation: cells")
    return [Paragraph((said,)), Grid(columns, tuple(rows), frozenset({1}))]


# -- who left


def _discards(found: Discards) -> list[Block]:
    others = found.n_candidates - 1
    if found.n_left:
        said = (
            f"{found.n_left:,} of {plural(others, 'other configuration')} left the race: the "
            f"probability that its mean reward lies above the leader's is below "
            f"{_probability(found.bound)} for each of them, so at an error of "
            f"{percent(found.error)} none of them does. "
        )
        after = [f"{n:,} with {plural(cells, 'cell')}" for cells, n in found.left_by_cells]
        shown = after if len(after) <= 8 else [*after[:7], f"{len(after) - 7} other counts"]
        said += f"They left with these cells: {', '.join(shown)}. "
    else:
        said = (
            f"None of {plural(others, 'other configuration')} left the race: each lies above the "
            f"leader with a probability of at least {_probability(found.bound)}. "
        )
    if found.n_waiting:
        said += (
            f"{plural(found.n_waiting, 'other')} did not leave, but had no claim on cells: only "
            f"the first {found.n_elites} by posterior mean compete. "
        )
    said += "As the evidence stands at the end; the leader is the highest posterior mean."
    blocks: list[Block] = [Heading("What was discarded, and why"), Paragraph((said,))]
    rows: list[tuple[Inline, ...]] = [
        (
            named_label(one.label, one.candidate_id),
            phrases.interval(one.mean, one.low, one.high),
            f"{one.n_cells:,}",
            _probability(one.probability),
        )
        for one in found.closest
    ]
    if rows:
        columns = ("configuration", "posterior mean", "cells", "above the leader")
        folded = f"The {len(rows)} that came closest" if len(rows) > 1 else "The one that left"
        blocks.append(Grid(columns, tuple(rows), frozenset({1, 2, 3}), folded=folded))
    return blocks


# -- words


def _percent(share: float) -> str:
    """Return a share in whole percent; a small one is not called none."""
    return "< 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def _share(mean: float | None, low: float | None, high: float | None) -> str:
    if mean is None or low is None or high is None:
        return phrases.UNKNOWN
    return f"{_percent(mean)} [{100 * low:.0f}, {100 * high:.0f}]"


def _signed(mean: float, low: float, high: float) -> str:
    return f"{phrases.signed(mean)} [{phrases.signed(low)}, {phrases.signed(high)}]"


def _probability(p: float) -> str:
    """Return a small probability with two digits that say something."""
    return "< 0.0001 %" if p < 1e-6 else f"{100 * p:.2g} %"
