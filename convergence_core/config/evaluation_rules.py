"""Rules of ``evaluation`` and ``llm``: cases, metrics and judges."""

import re
import warnings

from convergence_core.config.api import CHAT_KINDS
from convergence_core.config.api_rules import check_url
from convergence_core.config.evaluation import (
    JudgeMetric,
    LlmConfig,
    MetricConfig,
    RegexMetric,
    ToolAllowedMetric,
    provider_of,
)
from convergence_core.config.models import Configuration
from convergence_core.config.problems import Report, listing
from convergence_core.config.secrecy import dotted, shown
from convergence_core.config.source import Path
from convergence_core.errors import ConfigurationError, Problem

_METRICS: Path = ("evaluation", "metrics")


def check_evaluation(
    configuration: Configuration, report: Report, *, allow_callable: bool
) -> None:
    """Check test cases and each metric, and that the reward has a metric."""
    evaluation = configuration.evaluation
    _check_test_cases(configuration, report)
    for name, metric in evaluation.metrics.items():
        path = (*_METRICS, name)
        _check_metric(metric, path, report)
        if metric.type == "function" and metric.function is None and not allow_callable:
            fix = "Add `function:`, e.g. `metrics.py:quality`."
            report.require((*path, "function"), "by type `function`", fix)
        if isinstance(metric, JudgeMetric):
            _check_judge(metric, path, report)
        elif metric.type == "first_token_ms":
            _check_first_token(configuration, path, report)
    if not any(metric.weight > 0 for metric in evaluation.metrics.values()):
        rule = "must have at least one metric with a weight above 0"
        report.add(_METRICS, rule, "Write e.g. `weight: 1`.", of_key=True)
    if evaluation.deterministic and evaluation.repeats > 1:
        rule, fix = (
            "must be 1 if `evaluation.deterministic` is true",
            "Remove `repeats`, or `deterministic`.",
        )
        report.add("evaluation.repeats", rule, fix, value=str(evaluation.repeats))
    _check_objective(configuration, report)


def _check_objective(configuration: Configuration, report: Report) -> None:
    evaluation = configuration.evaluation
    metrics = evaluation.metrics.values()
    if evaluation.objective == "pareto":
        path = "evaluation.objective"
        if sum(metric.weight > 0 for metric in metrics) == 1:
            rule = "must be `reward` if only one metric has a weight above 0"
            fix = "Give another metric a weight, or remove it."
            report.add(path, rule, fix, value="pareto")
        if configuration.optimization.algorithm == "evolution":
            rule = "must be `reward` with `optimization.algorithm: evolution`"
            fix = "Write `algorithm: mab_evolution`, or remove it."
            report.add(path, rule, fix, value="pareto")
    is_constrained = any(metric.is_constrained for metric in metrics)
    default = type(evaluation).model_fields["max_broken"].default
    if evaluation.max_broken != default and not is_constrained:
        rule = "has no effect: no metric has a `min` or `max`"
        fix = "Remove it, or give a metric `min` or `max`."
        report.add("evaluation.max_broken", rule, fix, of_key=True)


def _check_test_cases(configuration: Configuration, report: Report) -> None:
    cases = configuration.evaluation.test_cases
    path = "evaluation.test_cases.path"
    if cases.path is not None and cases.inline is not None:
        rule = "cannot be combined with `inline`"
        report.add(path, rule, "Remove one of them.", value=shown(cases.path))
    elif cases.path is None and cases.inline is None:
        rule = "is required, unless there are `inline` cases"
        report.add(path, rule, "Write e.g. `path: cases.json`.", of_key=True)
    if cases.approved is not None and not cases.approved.endswith(".jsonl"):
        rule = "must name a .jsonl file, to which lines are appended"
        fix = "Write e.g. `approved: approved_cases.jsonl`."
        report.add("evaluation.test_cases.approved", rule, fix, value=shown(cases.approved))


def _check_metric(metric: MetricConfig, path: Path, report: Report) -> None:
    if (
        isinstance(metric, ToolAllowedMetric)
        and not metric.forbidden
        and metric.expected_field is None
    ):
        why = "by type `tool_allowed`, unless `expected_field` names where cases list them"
        fix = "Write e.g. `forbidden: [delete_*]`."
        report.require((*path, "forbidden"), why, fix)
    if isinstance(metric, RegexMetric) and metric.pattern is not None:
        _check_pattern(metric.pattern, (*path, "pattern"), report)
    if metric.scale is not None:
        good, bad = metric.scale.good, metric.scale.bad
        value, scale = f"good={good}, bad={bad}", (*path, "scale")
        if good == bad:
            rule = "must have a `good` that differs from `bad`"
            report.add(scale, rule, "Write two different values.", value=value)
        elif (good > bad) != (metric.direction == "higher"):
            rule = f"must agree with direction `{metric.direction}`"
            fix = "Swap `good` and `bad`, or remove `direction`."
            report.add(scale, rule, fix, value=value)
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


def _check_first_token(configuration: Configuration, path: Path, report: Report) -> None:
    api = configuration.api
    if api.kind not in CHAT_KINDS:
        rule = f"is not measured with kind `{api.kind}`: only chat kinds stream"
        fix = "Use `latency_ms`, or remove it."
        report.add(path, rule, fix, of_key=True)
    elif not api.request.stream:
        rule = "is measured only while answers are streamed"
        fix = "Add `stream: true` to `api.request`, or use `latency_ms`."
        report.add(path, rule, fix, of_key=True)


# -- judges


def _check_judge(metric: JudgeMetric, path: Path, report: Report) -> None:
    """Check one metric of type ``llm_judge``."""
    _check_rubric(metric, path, report)
    if metric.votes % 2 == 0:
        rule, fix = "must be odd", f"Write {metric.votes + 1}, so that no vote is a tie."
        report.add((*path, "votes"), rule, fix, value=str(metric.votes))
    _check_range(metric, path, report)
    if metric.mode != "pairwise" and metric.champion is not None:
        fix = "Write `mode: pairwise`, or remove it."
        report.no_effect((*path, "champion"), f"with mode `{metric.mode}`", fix)
    if metric.label_field is not None and metric.mode == "pairwise":
        why = "with mode `pairwise`: labels are of answers, not of pairs"
        fix = "Remove it, or write `mode: rating` or `mode: pass_fail`."
        report.no_effect((*path, "label_field"), why, fix)


def _check_rubric(metric: JudgeMetric, path: Path, report: Report) -> None:
    rubric, file = (*path, "rubric"), (*path, "rubric_path")
    if metric.rubric is None and metric.rubric_path is None:
        why = "by type `llm_judge`, unless there is a `rubric_path`"
        report.require(rubric, why, "Describe a good answer.")
    elif metric.rubric is not None and metric.rubric_path is not None:
        rule = "cannot be combined with `rubric`"
        report.add(file, rule, "Remove one of them.", of_key=True)
    elif metric.rubric is not None and not metric.rubric.strip():
        report.add(rubric, "must not be empty", "Describe a good answer.")


def _check_range(metric: JudgeMetric, path: Path, report: Report) -> None:
    """Check that limits lie in [0, 1]: ratings are from 1 to 10, but measured in [0, 1]."""
    limits: dict[Path, float | None] = {("min",): metric.min, ("max",): metric.max}
    if metric.scale is not None:
        limits |= {("scale", "good"): metric.scale.good, ("scale", "bad"): metric.scale.bad}
    for keys, value in limits.items():
        if value is None or 0 <= value <= 1:
            continue
        fix = "Write a share, e.g. 0.5."
        if metric.mode == "rating" and 1 < value <= 10:
            fix = f"Write {(value - 1) / 9:.3g} for a rating of {value:g}."
        rule = "must lie between 0 and 1, like a judge's values"
        report.add((*path, *keys), rule, fix, value=shown(value))


# -- judges' models


def check_judges(configuration: Configuration) -> None:
    """Check that each metric of type ``llm_judge`` has a model; ``--offline`` needs none.

    Raises:
        ConfigurationError: Names each metric without a model.
    """
    rule = (
        "is required by type `llm_judge`, here or as `society.llm`, because the target has "
        "no model that could judge"
    )
    fix = (
        "Add e.g. `society: {llm: {model: openai/gpt-4o-mini, api_key_env: OPENAI_API_KEY}}`, or run it "
        "with `--offline`, where the mock judges."
    )
    problems = [
        Problem(key=dotted((*_METRICS, name, "llm")), rule=rule, value="", fix=fix)
        for name, metric in configuration.evaluation.judges.items()
        if configuration.judge_of(metric) is None
    ]
    if problems:
        raise ConfigurationError(problems)


def judge_note(configuration: Configuration, *, is_offline: bool = False) -> str | None:
    """Return the judge if no key names a model, in words; ``None`` otherwise or without judges."""
    is_named = configuration.llm is not None or all(
        metric.llm is not None for metric in configuration.evaluation.judges.values()
    )
    if is_named:
        return None
    llm, unnamed = configuration.target_llm, "no society.llm is named"
    if llm is None:
        return f"the mock ({unnamed}, and the target has no model)" if is_offline else None
    return f"{llm.model}, the target's own ({unnamed})"


_KEY_NAMES = {
    "openai": "OPENAI_API_KEY",
    "groq": "GROQ_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
}


def check_llm(configuration: Configuration, report: Report) -> None:
    """Check each model that judges, and that the general one has an effect."""
    for path, llm in configuration.llms:
        _check_llm(llm, path, report)
    society = configuration.society
    if configuration.llm is not None and not (
        society.thinks
        or society.prefers
        or configuration.evaluation.judges
        or configuration.writes_prompts
        or society.games.asks_llm(if_unknown=True)
    ):
        rule = (
            "has no effect: no metric of type `llm_judge` uses it, no learner or game does, and "
            "no prompt has `mutate: true`"
        )
        fix = (
            "Remove it, add a metric, e.g. `quality: {type: llm_judge, rubric: …}`, or write "
            "`society: {enabled: true}`."
        )
        report.add("llm", rule, fix, of_key=True)


def _check_llm(llm: LlmConfig, path: Path, report: Report) -> None:
    provider = provider_of(llm.model)
    endpoint, model = (*path, "endpoint"), (*path, "model")
    if llm.endpoint is not None:
        fix = "Put the key into an environment variable and name it by `api_key_env`."
        check_url(endpoint, llm.endpoint, report, secret_fix=fix)
    elif provider == "azure":
        fix = "Add `endpoint:` with the URL of your resource."
        report.require(endpoint, "by models of `azure`", fix)
    elif provider is None:
        known = listing([f"{name}/" for name in _KEY_NAMES])
        rule = f"must begin with {known} without an `endpoint`"
        fix = "Write e.g. `openai/gpt-4o-mini`, or add `endpoint:` with a URL."
        report.add(model, rule, fix, value=shown(llm.model))
    elif llm.api_key_env is None:
        fix = f"Add `api_key_env: {_KEY_NAMES[provider]}`, or an `endpoint` that needs no key."
        report.require((*path, "api_key_env"), f"by models of `{provider}`", fix)
