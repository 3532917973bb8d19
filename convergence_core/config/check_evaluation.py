"""Rules of ``evaluation``: test cases, metrics, and who computes them."""

import re
import warnings

from convergence_core.config.api import CHAT_KINDS
from convergence_core.config.check_judges import check_judge
from convergence_core.config.evaluation import MetricConfig, MetricType
from convergence_core.config.models import Configuration
from convergence_core.config.report import Report
from convergence_core.config.shown import shown
from convergence_core.config.source import Path

_METRICS: Path = ("evaluation", "metrics")

_COMPARING: tuple[MetricType, ...] = (
    "exact_match",
    "contains",
    "regex",
    "numeric",
    "json_schema",
    "similarity",
    "function",
    "llm_judge",
)
_USERS: dict[str, tuple[MetricType, ...]] = {
    "field": _COMPARING,
    "expected_field": _COMPARING,
    "pattern": ("regex",),
    "tolerance": ("numeric",),
    "relative_tolerance": ("numeric",),
    "json_schema": ("json_schema",),
    "case_sensitive": ("exact_match", "contains", "regex", "similarity"),
    "strip": ("exact_match", "contains", "similarity"),
    "method": ("similarity",),
    "function": ("function",),
    "mode": ("llm_judge",),
    "rubric": ("llm_judge",),
    "rubric_path": ("llm_judge",),
    "votes": ("llm_judge",),
    "champion": ("llm_judge",),
    "label_field": ("llm_judge",),
    "llm": ("llm_judge",),
}
"""Options of metrics and the types that read them."""


def check_evaluation(
    configuration: Configuration, report: Report, *, allow_callable: bool
) -> None:
    """Check test cases, each metric, and that something is optimized at all."""
    evaluation = configuration.evaluation
    _check_test_cases(configuration, report)
    _check_evaluator(configuration, report, allow_callable=allow_callable)
    for name, metric in evaluation.metrics.items():
        path = (*_METRICS, name)
        _check_metric(metric, path, report)
        if metric.type == "llm_judge":
            check_judge(configuration, metric, path, report)
        elif metric.type == "first_token_ms":
            _check_first_token(configuration, path, report)
    if not any(metric.weight > 0 for metric in evaluation.metrics.values()):
        rule = "must have at least one metric with a weight above 0"
        report.add(_METRICS, rule, "Write e.g. `weight: 1`.", of_key=True)
    if evaluation.deterministic and evaluation.repeats > 1:
        rule = "must be 1 where `evaluation.deterministic` is true"
        report.add(
            ("evaluation", "repeats"),
            rule,
            "Remove `repeats`, or `deterministic`.",
            value=str(evaluation.repeats),
            about=(("evaluation", "deterministic"),),
        )
    _check_goals(configuration, report)


def _check_goals(configuration: Configuration, report: Report) -> None:
    evaluation = configuration.evaluation
    metrics = evaluation.metrics.values()
    path: Path = ("evaluation", "objective")
    if evaluation.objective == "pareto":
        n_weighted = sum(metric.weight > 0 for metric in metrics)
        if n_weighted == 1:
            rule = "must be `reward` where only one metric has a weight above 0"
            fix = "Give another metric a weight, or remove it."
            report.add(path, rule, fix, value="pareto", about=(_METRICS,))
        algorithm = configuration.optimization.algorithm
        if algorithm == "evolution":
            rule = "must be `reward` with `optimization.algorithm: evolution`"
            fix = "Write `algorithm: mab_evolution`, or remove it."
            about: tuple[Path, ...] = (("optimization", "algorithm"),)
            report.add(path, rule, fix, value="pareto", about=about)
    is_constrained = any(m.min is not None or m.max is not None for m in metrics)
    default = type(evaluation).model_fields["max_broken"].default
    if evaluation.max_broken != default and not is_constrained:
        rule = "has no effect: no metric has a `min` or `max`"
        fix = "Remove it, or give a metric `min` or `max`."
        about = (_METRICS,)
        report.add(("evaluation", "max_broken"), rule, fix, of_key=True, about=about)


def _check_test_cases(configuration: Configuration, report: Report) -> None:
    cases = configuration.evaluation.test_cases
    path: Path = ("evaluation", "test_cases")
    if cases.path is not None and cases.inline is not None:
        rule = "must not stand beside `inline`"
        report.add((*path, "path"), rule, "Remove one of them.", value=shown(cases.path))
    elif cases.path is None and cases.inline is None:
        rule, fix = (
            "is required, unless there are `inline` cases",
            "Write e.g. `path: cases.json`.",
        )
        about = ((*path, "inline"),)
        report.add((*path, "path"), rule, fix, of_key=True, about=about)
    elif cases.inline is not None and not cases.inline:
        rule = "must hold at least one test case"
        report.add((*path, "inline"), rule, "Write e.g. `- {input: …, expected: …}`.")


def _check_evaluator(
    configuration: Configuration, report: Report, *, allow_callable: bool
) -> None:
    evaluation = configuration.evaluation
    evaluator = evaluation.custom_evaluator
    path: Path = ("evaluation", "custom_evaluator")
    if evaluator is not None:
        for key in ("module", "function"):
            if getattr(evaluator, key) is None:
                rule = "is required by an enabled `custom_evaluator`"
                fix = f"Add `{key}:`, or write `enabled: false`."
                report.add((*path, key), rule, fix, of_key=True)
    needing = [
        name
        for name, metric in evaluation.metrics.items()
        if metric.type == "function" and metric.function is None
    ]
    if evaluator is None and not allow_callable:
        for name in needing:
            rule = "is required by type `function` without a `custom_evaluator`"
            fix = "Add `function:`, e.g. `metrics.py:quality`."
            report.add((*_METRICS, name, "function"), rule, fix, of_key=True, about=(path,))
    elif evaluator is not None and not needing:
        rule = "has no effect: no metric of type `function` leaves its function to it"
        fix = "Remove it, or give a metric `type: function` without `function`."
        report.add(path, rule, fix, of_key=True, about=(_METRICS,))


def _check_metric(metric: MetricConfig, path: Path, report: Report) -> None:
    kind: Path = (*path, "type")
    for field, users in _USERS.items():
        info = type(metric).model_fields[field]
        key = info.alias or field
        if metric.type not in users and getattr(metric, field) != info.default:
            rule = f"has no effect on a metric of type `{metric.type}`"
            fix = f"Remove it; it is read for {', '.join(f'`{user}`' for user in users)}."
            report.add((*path, key), rule, fix, of_key=True, about=(kind,))
    if metric.pattern is not None and metric.type == "regex":
        _check_pattern(metric.pattern, (*path, "pattern"), report)
    if metric.scale is not None:
        _check_scale(metric, path, report)
    if metric.min is not None and metric.max is not None and metric.min > metric.max:
        rule, value = "must not be below `min`", f"min={metric.min}, max={metric.max}"
        report.add((*path, "max"), rule, "Swap them.", value=value)


def _check_pattern(pattern: str, path: Path, report: Report) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        rule = f"must be a regular expression: {str(error)[:80] or 'it is too large'}"
        report.add(path, rule, r"Escape special characters by `\`.", value=shown(pattern))


def _check_scale(metric: MetricConfig, path: Path, report: Report) -> None:
    scale = metric.scale
    assert scale is not None  # noqa: S101 - the caller looked
    value = f"good={scale.good}, bad={scale.bad}"
    if scale.good == scale.bad:
        rule = "must have a `good` that differs from `bad`"
        report.add((*path, "scale"), rule, "Write two different values.", value=value)
    elif (scale.good > scale.bad) != (metric.direction == "higher"):
        rule = f"must agree with direction `{metric.direction}`"
        fix = "Swap `good` and `bad`, or remove `direction`."
        report.add((*path, "scale"), rule, fix, value=value, about=((*path, "direction"),))


def _check_first_token(configuration: Configuration, path: Path, report: Report) -> None:
    api = configuration.api
    if api.kind not in CHAT_KINDS:
        rule = f"is not measured with kind `{api.kind}`: only chat kinds stream"
        fix = "Use `latency_ms`, or remove it."
        report.add(path, rule, fix, of_key=True, about=(("api", "kind"),))
    elif not api.request.stream:
        rule = "is measured only while answers are streamed"
        fix = "Add `stream: true` to `api.request`, or use `latency_ms`."
        report.add(path, rule, fix, of_key=True, about=(("api", "request"),))
