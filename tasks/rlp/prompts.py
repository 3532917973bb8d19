"""Prompts of thoughts: all facts about a system, and the task.

A thinker sees the data of the search's posterior: every setting with its number of evaluations,
mean and standard error, on the scales of the space. Notes and forecasts were written by a model,
so they are fenced as data by a mark that they cannot hold (``convergence_core.judges.texts``).
Their content is never an instruction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from convergence_core.judges.texts import fenced
from convergence_core.records import Json, Params
from convergence_core.rlp.commitments import ThoughtKind
from convergence_core.rlp.quantiles import Quantiles
from convergence_core.space import Choice, Space

Messages: TypeAlias = list[dict[str, Json]]

WORDING_VERSION: Final = "thought-3"
"""Version of the wording below; part of every request, so that new wording makes new calls."""
TASK: Final = "\n\nTask: "
"""Separator between the facts and the task."""
MOST_ROWS: Final = 60
"""Maximum settings in the table; of more, the best half and the newest half."""
MOST_TEXT: Final = 80
"""Maximum characters of a text parameter's value."""
ROLE: Final = (
    "You help to tune a system. A trial is one setting of its parameters; its score lies between 0 and 1, higher is "
    "better. You forecast scores and propose settings, from the trials and from what you know of such "
    "systems. A forecast is its 10, 50 and 90 % quantile: the score should fall below the first in 1 of 10 "
    "cases and above the last in 1 of 10."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """An evaluated setting."""

    candidate_id: str
    params: Params
    n: int
    """Number of evaluations with a score."""
    mean: float
    """Mean score, adjusted for cases."""
    se: float | None
    """Standard error; ``None`` if unknown."""
    forecast: Quantiles | None = None
    """Latest forecast of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtRequest:
    """Data and task of a thought."""

    generation: int
    kind: ThoughtKind
    space: Space
    around: Params
    """Defaults of parameters that a proposed setting omits: the leader's values, or the configured
    defaults.
    """
    trials: Sequence[TrialRow] = ()
    """Earlier trials, in the order of their first evaluation."""
    reserved: Mapping[str, Params] = field(default_factory=dict)
    """Candidate → setting evaluated next, chosen without a thought."""
    n_cells: Mapping[str, int] = field(default_factory=dict)
    """Candidate → number of its evaluations."""
    n_settings: int = 5
    """Maximum settings to propose."""
    notes: str = ""
    """Notes of earlier thoughts."""


class RlpPrompts:
    """Prompts for real models; a mock's prompts may have other wording."""

    version = WORDING_VERSION

    def __init__(self, about: str = "", metrics: str = "", role: str = "") -> None:
        """Set the description of the system.

        Args:
            about: Name and description.
            metrics: Metrics and their rules, one per line.
            role: Role of the model, derived from the description; empty means no role.
        """
        self._about, self._metrics = about, metrics
        self._system = f"{role} {ROLE}".strip()

    def messages(self, request: ThoughtRequest, problem: str = "") -> Messages:
        """Return the messages to the model.

        Args:
            request: Data and task.
            problem: Why its last reply was unreadable; empty at the first attempt.
        """
        task = _task(request)
        if problem:
            task += f"\nYour last reply could not be read: {problem}. Reply with the JSON object alone."
        return [
            {"role": "system", "content": self._system},
            {"role": "user", "content": f"{self.facts(request)}{TASK}{task}"},
        ]

    def facts(self, request: ThoughtRequest) -> str:
        """Return all facts before the generation, and the next settings."""
        space = request.space
        parts = [f"System: {self._about}"] if self._about else []
        parts += [f"Score:\n{self._metrics}"] if self._metrics else []
        parts.append(f"Parameters:\n{space_text(space)}")
        names = trial_names(request)
        if request.trials:
            parts.append(_table(request, names))
        if request.notes and request.kind == "notes":
            parts.append(f"Your earlier notes:\n{fenced('NOTES', request.notes)}")
        if request.reserved:
            header = "|".join(("trial", "evaluations", *space.parameters))
            lines = [
                _line(
                    [name, request.n_cells.get(candidate, 1)], request.reserved[candidate], space
                )
                for name, candidate in asked_names(request).items()
            ]
            parts.append("Next trials, chosen without you:\n" + "\n".join((header, *lines)))
        return "\n\n".join(parts)


def trial_names(request: ThoughtRequest) -> dict[str, str]:
    """Return candidate → short name of each trial of the table."""
    return {row.candidate_id: f"t{number}" for number, row in enumerate(request.trials, 1)}


def asked_names(request: ThoughtRequest) -> dict[str, str]:
    """Return short name → candidate to forecast; a repeated candidate keeps its name."""
    known = trial_names(request)
    return {known.get(name, f"n{i}"): name for i, name in enumerate(request.reserved, 1)}


def space_text(space: Space) -> str:
    """Return one line per parameter with values, scale and default, and one per constraint."""
    lines, defaults = [], space.baseline() or {}
    for name, parameter in space.parameters.items():
        if isinstance(parameter, Choice):
            values = ", ".join(_choice(parameter, index) for index in range(parameter.n_values))
            domain = f"one of {values}"
        else:
            kind = "whole number" if parameter.kind == "int" else "number"
            domain = f"{kind} from {parameter.min:g} to {parameter.max:g}"
            step = parameter.step
            domain += f" in steps of {step:g}" if step is not None else ""
            domain += ", log scale" if parameter.log else ""
        if name in defaults:
            domain += f"; default {parameter.show(defaults[name])}"
        lines.append(f"- {name}: {domain}")
    return "\n".join(
        [*lines, *(f"- constraint: {constraint}" for constraint in space.constraints)]
    )


def _choice(parameter: Choice, index: int) -> str:
    """Return a choice; a text by its short name and its start."""
    value = parameter.choices[index]
    if parameter.kind != "text":
        return parameter.show(value)
    text = " ".join(str(value).split())
    shown = text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
    return f"{parameter.show(value)} ({shown})"


def _line(first: Sequence[object], params: Params, space: Space) -> str:
    """Return fields and a setting, separated by bars."""
    values = (
        parameter.show(params[name]) if name in params else "-"
        for name, parameter in space.parameters.items()
    )
    return "|".join([*(str(value) for value in first), *values])


def _table(request: ThoughtRequest, names: Mapping[str, str]) -> str:
    rows = [*request.trials]
    if len(rows) > MOST_ROWS:
        best = sorted(rows, key=lambda row: -row.mean)[: MOST_ROWS // 2]
        newest = [row for row in reversed(rows) if row not in best][: MOST_ROWS - len(best)]
        rows = [row for row in rows if row in best or row in newest]
    header = ("trial", "evaluations", "mean score", "standard error", "your forecast")
    lines = [
        _line(
            (
                names[row.candidate_id],
                row.n,
                f"{row.mean:.4g}",
                "-" if row.se is None else f"{row.se:.2g}",
                "-"
                if row.forecast is None
                else "/".join(f"{q:.3g}" for q in row.forecast.to_json()),
            ),
            row.params,
            request.space,
        )
        for row in rows
    ]
    return "Trials so far:\n" + "\n".join(("|".join((*header, *request.space.parameters)), *lines))


def _task(request: ThoughtRequest) -> str:
    settings = (
        f'"settings": up to {request.n_settings} settings that you want evaluated, best first, each '
        '{"values": {parameter: value}, "score": [q10, q50, q90]}'
    )
    if request.kind == "start":
        return (
            "No trial was run yet. Reply with one JSON object and nothing else: "
            f"{{{settings}}}. Choose what is known to work well for such a system, not alike."
        )
    forecasts = '"forecasts": {trial: [q10, q50, q90]} for each of the next trials'
    settings += ", which the search would not find soon by itself"
    if request.kind == "none":
        return f"Reply with one JSON object and nothing else: {{{forecasts}, {settings}}}."
    notes = (
        '"notes": at most 120 words that make the forecasts exact, naming values and effects, not '
        "repeating the table"
    )
    return f"Reply with one JSON object and nothing else, in this order: {{{notes}, {forecasts}, {settings}}}."
