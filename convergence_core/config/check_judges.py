"""Rules of metrics of type ``llm_judge``: what is judged, by whom, and against which champion."""

from collections.abc import Mapping

from pydantic import JsonValue

from convergence_core.config.check_constraints import report_unknown
from convergence_core.config.check_space import allowed, allows, is_active
from convergence_core.config.evaluation import MetricConfig
from convergence_core.config.models import Configuration
from convergence_core.config.report import Report
from convergence_core.config.shown import shown
from convergence_core.config.source import Path

_SPACE: Path = ("search_space", "parameters")


def check_judge(
    configuration: Configuration, metric: MetricConfig, path: Path, report: Report
) -> None:
    """Check one metric of type ``llm_judge``."""
    if metric.llm is None and configuration.llm is None:
        rule = "is required by type `llm_judge`, here or at top level"
        fix = "Add e.g. `llm: {model: openai/gpt-4o-mini, api_key_env: OPENAI_API_KEY}`."
        about: tuple[Path, ...] = (("llm",), ("society", "llm"))
        report.add((*path, "llm"), rule, fix, of_key=True, about=about)
    _check_rubric(metric, path, report)
    if metric.votes % 2 == 0:
        rule, fix = "must be odd", f"Write {metric.votes + 1}, so that no vote is a tie."
        report.add((*path, "votes"), rule, fix, value=str(metric.votes))
    _check_range(metric, path, report)
    _check_champion(configuration, metric, path, report)
    if metric.label_field is not None and metric.mode == "pairwise":
        rule = "has no effect with mode `pairwise`: labels are of answers, not of pairs"
        fix = "Remove it, or write `mode: rating` or `mode: pass_fail`."
        report.add((*path, "label_field"), rule, fix, of_key=True, about=((*path, "mode"),))


def _check_rubric(metric: MetricConfig, path: Path, report: Report) -> None:
    about = ((*path, "rubric_path"), (*path, "rubric"))
    if metric.rubric is None and metric.rubric_path is None:
        rule = "is required by type `llm_judge`, unless there is a `rubric_path`"
        fix = "Say in words what a good answer is."
        report.add((*path, "rubric"), rule, fix, of_key=True, about=about)
    elif metric.rubric is not None and metric.rubric_path is not None:
        rule = "must not stand beside `rubric`"
        report.add((*path, "rubric_path"), rule, "Remove one of them.", of_key=True, about=about)
    elif metric.rubric is not None and not metric.rubric.strip():
        report.add((*path, "rubric"), "must not be empty", "Say what a good answer is.")


def _check_range(metric: MetricConfig, path: Path, report: Report) -> None:
    """Ratings are told from 1 to 10, but measured in [0, 1]; limits must be, too."""
    limits: list[tuple[Path, float | None]] = [
        ((*path, "min"), metric.min),
        ((*path, "max"), metric.max),
    ]
    if metric.scale is not None:
        limits += [((*path, "scale", "good"), metric.scale.good)]
        limits += [((*path, "scale", "bad"), metric.scale.bad)]
    for place, value in limits:
        if value is None or 0 <= value <= 1:
            continue
        rule = "must lie between 0 and 1, where a judge's values do"
        fix = "Write a share, e.g. 0.5."
        if metric.mode == "rating" and 1 < value <= 10:
            fix = f"Write {(value - 1) / 9:.3g} for a rating of {value:g}."
        report.add(place, rule, fix, value=shown(value))


def _check_champion(
    configuration: Configuration, metric: MetricConfig, path: Path, report: Report
) -> None:
    mode, place = (*path, "mode"), (*path, "champion")
    parameters = configuration.search_space.parameters
    if metric.mode != "pairwise":
        if metric.champion is not None:
            rule = f"has no effect with mode `{metric.mode}`"
            report.add(
                place, rule, "Write `mode: pairwise`, or remove it.", of_key=True, about=(mode,)
            )
    elif isinstance(metric.champion, dict):
        _check_params(configuration, metric.champion, place, report)
    elif all(parameter.default is None for parameter in parameters.values()):
        rule = "must name parameters and their values, since none of them has a `default`"
        fix = "Write e.g. `{" + ", ".join(f"{name}: …" for name in list(parameters)[:3]) + "}`."
        report.add(place, rule, fix, of_key=True, about=(mode, _SPACE))


def _check_params(
    configuration: Configuration,
    params: Mapping[str, JsonValue],
    path: Path,
    report: Report,
) -> None:
    """Check that a mapping is a point of the space."""
    known = configuration.search_space.parameters
    for name, value in params.items():
        if name not in known:
            report_unknown((*path, name), name, known, report, of_key=True)
        elif not isinstance(value, bool | int | float | str) or not allows(known[name], value):
            rule = f"must be {allowed(known[name])} of `{name}`"
            fix = "Write a value that the parameter can take."
            about = ((*_SPACE, name),)
            report.add((*path, name), rule, fix, value=shown(value), about=about)
    for name in known:
        if name not in params and is_active(name, known, params):
            rule = f"must have a value of `{name}` too"
            fix = f"Add `{name}: …`; the champion is a whole set of parameters."
            report.add(path, rule, fix, of_key=True, about=((*_SPACE, name),))
            return
