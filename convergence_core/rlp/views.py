"""Views of the history, one for each strategy: short texts for a model."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from convergence_core.records import Params, ParamValue
from convergence_core.rlp.history import N_PLACES, TrialHistory, TrialSummary
from convergence_core.space import Choice, Float, Integer, Space

FIFTHS: Final = tuple(
    f"{100 * i // N_PLACES}-{100 * (i + 1) // N_PLACES} % of range" for i in range(N_PLACES)
)

View: TypeAlias = Callable[[TrialHistory, Space], str]

N_SHOWN: Final = 8
"""Trials shown at each end."""
MOST_TEXT: Final = 80
"""Characters of a text parameter's value that are shown."""


def line(trial: TrialSummary, space: Space) -> str:
    """Return a trial on one line."""
    params = params_text(trial.params, space)
    return f"reward {trial.reward:.3f} over {trial.n_cells} cells: {params}"


def params_text(params: Params, space: Space) -> str:
    """Return a candidate's parameters on one line, in the space's order; texts by short names."""
    return ", ".join(
        f"{name}={parameter.show(params[name])}"
        for name, parameter in space.parameters.items()
        if name in params
    )


def space_text(space: Space) -> str:
    """Return the parameters and their values, a line each."""
    lines = []
    for name, parameter in space.parameters.items():
        if isinstance(parameter, Choice):
            domain = "one of " + " | ".join(
                _choice(parameter, value) for value in parameter.choices
            )
        else:
            domain = f"number from {parameter.min:g} to {parameter.max:g}"  # type: ignore[attr-defined]  # the others are numbers
        lines.append(f"- {name}: {domain}")
    return "\n".join(lines)


def _choice(parameter: Choice, value: ParamValue) -> str:
    """Return a choice; a text by its short name and its beginning."""
    if parameter.kind != "text":
        return parameter.show(value)
    text = " ".join(str(value).split())
    shown = text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
    return f"{parameter.show(value)} ({shown})"


def summary(history: TrialHistory, space: Space) -> str:
    """Return the best, the worst and the latest trials: what predictions are made from."""
    chosen: dict[int, TrialSummary] = {}
    for trial in (*history.best(N_SHOWN), *history.worst(4), *history.latest(N_SHOWN)):
        chosen[id(trial)] = trial
    ranked = sorted(chosen.values(), key=lambda r: (-r.reward, r.candidate_id, r.generation))
    return _lines(ranked, space)


def winners(history: TrialHistory, space: Space) -> str:
    """Return the best trials."""
    return _lines(history.best(N_SHOWN), space)


def contrast(history: TrialHistory, space: Space) -> str:
    """Return best and worst trials beside each other."""
    best, worst = _lines(history.best(4), space), _lines(history.worst(4), space)
    return f"Best:\n{best}\nWorst:\n{worst}"


def trends(history: TrialHistory, space: Space) -> str:
    """Return mean rewards by value, or by fifth of the range, of each parameter."""
    lines = []
    for name in space.parameters:
        means = _by_place(history, _places(history, space, name))
        listed = "; ".join(f"{place}: {mean:.3f} (n={n})" for place, mean, n in means)
        lines.append(f"- {name}: {listed}")
    return "\n".join(lines)


def interactions(history: TrialHistory, space: Space) -> str:
    """Return mean rewards by pairs of values of the two parameters that matter most."""
    places = {name: _places(history, space, name) for name in space.parameters}
    ranked = sorted(places, key=lambda name: -_spread(history, places[name]))[:2]
    if len(ranked) < 2:
        return trends(history, space)
    cells: dict[tuple[str, str], list[float]] = defaultdict(list)
    pairs = zip(history.trials, places[ranked[0]], places[ranked[1]], strict=True)
    for trial, first, second in pairs:
        if first is not None and second is not None:
            cells[first, second].append(trial.reward)
    lines = [
        f"- {ranked[0]} {a}, {ranked[1]} {b}: {sum(r) / len(r):.3f} (n={len(r)})"
        for (a, b), r in sorted(cells.items())
    ]
    return "\n".join(lines)


def failures(history: TrialHistory, space: Space) -> str:
    """Return trials with failed cells and why; without any, the worst."""
    failed = [r for r in history.trials if r.n_failed]
    if not failed:
        return f"No cell failed. Worst:\n{_lines(history.worst(N_SHOWN), space)}"
    failed.sort(key=lambda r: (-r.n_failed / r.n_cells, r.candidate_id))
    return "\n".join(
        f"- {r.n_failed} of {r.n_cells} cells failed ({r.failure}): {line(r, space)}"
        for r in failed[:N_SHOWN]
    )


def boundaries(history: TrialHistory, space: Space) -> str:
    """Return how far each number was driven, and what the trials at its ends were worth."""
    lines = []
    for name, parameter in space.parameters.items():
        if not isinstance(parameter, Float | Integer):
            continue
        tried = sorted(
            (float(r.params[name]), r.reward) for r in history.trials if name in r.params
        )
        if tried:
            (low, at_low), (high, at_high) = tried[0], tried[-1]
            lines.append(
                f"- {name} may be {parameter.min:g} to {parameter.max:g}; tried {low:g} "
                f"(reward {at_low:.3f}) to {high:g} (reward {at_high:.3f})"
            )
    return "\n".join(lines) or trends(history, space)


def costs(history: TrialHistory, space: Space) -> str:
    """Return the best trials with their latency and price."""
    lines = []
    for trial in history.best(N_SHOWN):
        latency = "unknown" if trial.latency_ms is None else f"{trial.latency_ms:.0f} ms"
        price = "unknown" if trial.cost_usd is None else f"{trial.cost_usd:.6f} USD"
        lines.append(f"- latency {latency}, price {price}; {line(trial, space)}")
    return "\n".join(lines)


def novelty(history: TrialHistory, space: Space) -> str:
    """Return which values no one has tried."""
    lines = []
    for name, parameter in space.parameters.items():
        tried = {*_places(history, space, name)}
        every = (
            [parameter.show(v) for v in parameter.choices]
            if isinstance(parameter, Choice)
            else FIFTHS
        )
        left = [place for place in every if place not in tried]
        lines.append(f"- {name}: not tried: {', '.join(left) if left else 'nothing'}")
    return "\n".join(lines)


# -- helpers


def _lines(trials: Sequence[TrialSummary], space: Space) -> str:
    return "\n".join(f"- {line(trial, space)}" for trial in trials)


def _places(history: TrialHistory, space: Space, name: str) -> list[str | None]:
    """Return each trial's value of a parameter, or fifth of its range; ``None`` if it has none."""
    parameter = space.parameters[name]
    values = [trial.params.get(name) for trial in history.trials]
    if isinstance(parameter, Choice):
        # Equal values of other kinds (1, True) are other choices.
        shown = {
            key: parameter.show(key[1]) for key in {(type(v), v) for v in values if v is not None}
        }
        return [None if v is None else shown[type(v), v] for v in values]
    return [
        None if v is None else FIFTHS[min(N_PLACES - 1, int(N_PLACES * parameter.to_unit(v)))]
        for v in values
    ]


def _by_place(history: TrialHistory, places: Sequence[str | None]) -> list[tuple[str, float, int]]:
    rewards: dict[str, list[float]] = defaultdict(list)
    for trial, place in zip(history.trials, places, strict=True):
        if place is not None:
            rewards[place].append(trial.reward)
    return [(place, sum(r) / len(r), len(r)) for place, r in sorted(rewards.items())]


def _spread(history: TrialHistory, places: Sequence[str | None]) -> float:
    means = [mean for _, mean, _ in _by_place(history, places)]
    return max(means) - min(means) if means else 0.0
