"""Sections on the reasons of a recommendation: parameters, pairs, discards."""

from convergence_core.explanation.records import (
    ERROR,
    Discard,
    Discards,
    Effect,
    EffectPoint,
    ParameterInteraction,
    Surface,
)
from convergence_core.result import RunResult, number_text
from convergence_core.result.number_text import percent, plural
from tasks.report.blocks import Block, Columns, Grid, Heading, Paragraph, Plots, code, table
from tasks.report.phrases import clean, named_label, short
from tasks.report.plots import MAX_EFFECTS, parameter_plots, plots_of

MAX_ROWS = 100


def explanation_blocks(result: RunResult) -> list[Block]:
    """Return the sections that explain a recommendation."""
    explanation = result.explanation
    blocks = _parameters(result)
    if explanation is None:
        return blocks
    if explanation.surface is not None and explanation.surface.n_pairs:
        blocks += _pairs(explanation.surface)
    if explanation.discards is not None and explanation.discards.n_candidates > 1:
        blocks += _discards(explanation.discards)
    return blocks


# -- parameters


def _parameters(result: RunResult) -> list[Block]:
    effects = [effect for effect in result.effects if len(effect.points) > 1]
    if not effects:
        return []
    caption = (
        "Bands and bars: the interval of the difference from the average, which is dashed. Hollow "
        "dots: values that no configuration tried. In brackets: configurations tried. Grey: no "
        "significant effect."
    )
    n_left_out = len(effects) - MAX_EFFECTS
    if n_left_out > 0:
        caption += f" {n_left_out} more are in the table."
    return [
        Heading("Parameter effects"),
        Paragraph((about_effects(result, effects),), "note"),
        Plots(plots_of(result, "shares")),
        _shares(effects),
        Plots(parameter_plots(result)[:MAX_EFFECTS]),
        Paragraph((caption,), "caption"),
        _values(effects),
    ]


def about_effects(result: RunResult, effects: list[Effect]) -> str:
    """Return a note on effects: their meaning, explained variance and significance."""
    text = (
        "Mean reward that the search's model expects at each value, averaged over a fixed sample of "
        f"the other parameters. Intervals ({percent(effects[0].level)}) are of the difference from the "
        "average over all values. The model covers the whole space, with few evaluations in parts of it. "
    )
    surface = None if result.explanation is None else result.explanation.surface
    if surface is not None:
        text += (
            f"A random configuration has a mean reward of "
            f"{number_text.interval(surface.average, surface.average_low, surface.average_high)}, with "
            f"a standard deviation of {number_text.reward(surface.sd)} between configurations. Single "
            f"parameters explain {_percent(surface.share_single)} of the variance; "
            f"{_percent(surface.share_own)} is specific to single configurations. "
        )
    n_sure = sum(effect.is_sure for effect in effects)
    return text + (
        f"{n_sure} of {plural(len(effects), 'parameter')} {'has' if n_sure == 1 else 'have'} a "
        f"significant effect (family-wise {percent(ERROR)})."
    )


def _shares(effects: list[Effect]) -> Grid:
    def highest(effect: Effect) -> EffectPoint:
        return max(effect.points, key=lambda point: point.mean)

    def reward_there(effect: Effect) -> str:
        point = highest(effect)
        return number_text.interval(point.mean, point.low, point.high)

    columns: Columns[Effect] = {
        "parameter": lambda effect: code(clean(effect.parameter)),
        "share of variance": lambda e: _share(e.share, e.share_low, e.share_high),
        "significant": _is_sure,
        "highest at": lambda effect: short(highest(effect).label),
        "expected mean reward there": reward_there,
        "active in": lambda effect: _percent(effect.share_active),
    }
    numeric = ("share of variance", "expected mean reward there", "active in")
    return table(effects[:MAX_ROWS], columns, numeric=numeric)


def _values(effects: list[Effect]) -> Grid:
    rows = [(effect, point) for effect in effects for point in effect.points]
    columns: Columns[tuple[Effect, EffectPoint]] = {
        "parameter": lambda row: code(clean(row[0].parameter)),
        "value": lambda row: clean(row[1].label),
        "expected mean reward": lambda row: number_text.interval(
            row[1].mean, row[1].low, row[1].high
        ),
        "configurations": lambda row: str(row[1].n_candidates),
    }
    folded = "Parameters in numbers"
    if len(rows) > MAX_ROWS:
        folded += f", the first {MAX_ROWS} of {len(rows):,} rows"
    numeric = ("expected mean reward", "configurations")
    return table(rows[:MAX_ROWS], columns, numeric=numeric, folded=folded)


# -- pairs


def _pairs(surface: Surface) -> list[Block]:
    n_sure = sum(pair.is_sure for pair in surface.interactions)
    text = (
        f"{n_sure or 'None'} of {plural(surface.n_pairs, 'pair')} of parameters "
        f"{'has' if n_sure <= 1 else 'have'} a significant effect beyond the sum of the two "
        f"(family-wise {percent(ERROR)})."
    )
    blocks: list[Block] = [Heading("Parameter interactions"), Paragraph((text,), "note")]
    if surface.interactions:
        columns: Columns[ParameterInteraction] = {
            "pair": lambda pair: " with ".join(clean(name) for name in pair.parameters),
            "share of variance": lambda pair: _share(pair.share, pair.low, pair.high),
            "significant": _is_sure,
            "strongest at": lambda pair: ", ".join(short(label, 40) for label in pair.labels),
            "beyond the sum": lambda pair: number_text.signed_interval(
                pair.effect, pair.effect_low, pair.effect_high
            ),
        }
        folded = "" if n_sure else "The strongest pairs, none significant"
        numeric = ("share of variance", "beyond the sum")
        blocks.append(table(surface.interactions, columns, numeric=numeric, folded=folded))
    return blocks


# -- candidates that left the race


def _discards(discards: Discards) -> list[Block]:
    others = plural(discards.n_candidates - 1, "other configuration")
    if discards.n_left:
        after = [
            f"{n:,} after {plural(cells, 'evaluation')}" for cells, n in discards.left_by_cells
        ]
        shown = after if len(after) <= 8 else [*after[:7], f"{len(after) - 7} other counts"]
        text = (
            f"The search dropped {discards.n_left:,} of {others}. The probability of beating the leader "
            f"is below {_probability(discards.bound)} for each, and below {percent(discards.error)} for "
            f"all together. Dropped: {', '.join(shown)}. "
        )
    else:
        text = (
            f"The search dropped none of {others}: each beats the leader with a probability of at "
            f"least {_probability(discards.bound)}. "
        )
    if discards.n_waiting:
        text += (
            f"{plural(discards.n_waiting, 'other')} got no more evaluations: only the first "
            f"{discards.n_elites} by posterior mean compete. "
        )
    text += "This is the evidence at the end; the leader has the highest posterior mean."
    blocks: list[Block] = [Heading("Discarded configurations"), Paragraph((text,))]
    if discards.closest:
        columns: Columns[Discard] = {
            "configuration": lambda row: named_label(row.label, row.candidate_id),
            "posterior mean": lambda row: number_text.interval(row.mean, row.low, row.high),
            "evaluations": lambda row: f"{row.n_cells:,}",
            "above the leader": lambda row: _probability(row.probability),
        }
        n = len(discards.closest)
        folded = f"The closest {n}" if n > 1 else "The one dropped"
        blocks.append(table(discards.closest, columns, numeric=[*columns][1:], folded=folded))
    return blocks


# -- formats


def _percent(share: float) -> str:
    """Return a share in whole percent; a small positive one is not shown as 0."""
    return "< 1 %" if 0 < share < 0.01 else number_text.whole_percent(share)


def _is_sure(effect: Effect | ParameterInteraction) -> str:
    return "yes" if effect.is_sure else "no"


def _share(mean: float, low: float, high: float) -> str:
    return f"{_percent(mean)} [{100 * low:.0f}, {100 * high:.0f}]"


def _probability(p: float) -> str:
    """Return a small probability with two significant digits."""
    return "< 0.0001 %" if p < 1e-6 else f"{100 * p:.2g} %"
