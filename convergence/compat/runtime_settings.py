"""Runtime settings of version 0.1, translated or refused with a reason."""

from collections.abc import Iterator, Mapping
from typing import Any

from convergence_core.errors import Problem

_REFUSED = {
    "cache_ttl_seconds": (
        "must be left out: every request sees the latest rewards",
        "Remove it.",
    ),
    "selection_strategy.use_stability": (
        "must not keep the arm that was pulled most: on equal terms that was the wrong arm in 29 of "
        "100 systems, and Thompson sampling in 1",
        "Write `use_stability: false`, or remove `selection_strategy`.",
    ),
    "selection_strategy.exploration_bonus": (
        "must be 0: posterior draws explore by themselves",
        "Remove it; `floor` spreads a share of the requests evenly.",
    ),
    "reward_evaluator.custom_evaluator": (
        "must not be enabled: a serving process runs no code that its state names",
        "Call the function yourself, and give `runtime_update` its result as `reward`.",
    ),
    "reward_evaluator.metrics.*.normalize": (
        "must be true: weights are shares of those that are given",
        "Remove it, and scale the signal to [0, 1] before you give it.",
    ),
}
"""Settings of version 0.1 that have no counterpart → rule and fix."""


def translated(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Return settings in our spelling, and a problem for each that has no counterpart.

    ``reward_evaluator.metrics`` become ``reward_metrics``. ``selection_strategy`` is taken out where it
    asks for plain Thompson sampling, which is what there is.
    """
    ours = dict(values)
    problems: list[Problem] = []
    if "cache_ttl_seconds" in ours:
        problems.append(_refused("cache_ttl_seconds", ours.pop("cache_ttl_seconds")))
    for key, translate in (
        ("selection_strategy", _strategy_problems),
        ("reward_evaluator", _evaluator_problems),
    ):
        section = ours.get(key)
        if section is None or isinstance(section, Mapping):
            ours.pop(key, None)
        if isinstance(section, Mapping):
            problems += translate(section, ours)
    return ours, problems


def _strategy_problems(strategy: Mapping[str, Any], _ours: dict[str, Any]) -> Iterator[Problem]:
    for name, default in (("use_stability", True), ("exploration_bonus", 0)):
        if strategy.get(name, default):
            yield _refused(f"selection_strategy.{name}", strategy.get(name, default))


def _evaluator_problems(evaluator: Mapping[str, Any], ours: dict[str, Any]) -> Iterator[Problem]:
    """Turn an evaluator into ``reward_metrics``; yield what cannot be turned."""
    custom = evaluator.get("custom_evaluator")
    if isinstance(custom, Mapping) and custom.get("enabled"):
        yield _refused("reward_evaluator.custom_evaluator", custom.get("function"))
    metrics = evaluator.get("metrics", [])
    found = []
    for i, metric in enumerate(metrics if isinstance(metrics, list) else []):
        plain = dict(metric) if isinstance(metric, Mapping) else metric
        if isinstance(plain, dict) and not plain.pop("normalize", True):
            yield _refused("reward_evaluator.metrics.*.normalize", False, i)
        found.append(plain)
    if found:
        ours.setdefault("reward_metrics", found)


def _refused(key: str, value: object, index: int = 0) -> Problem:
    rule, fix = _REFUSED[key]
    return Problem(key=key.replace("*", str(index)), rule=rule, value=repr(value)[:80], fix=fix)
