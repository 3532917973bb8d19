"""Settings at run time as the-convergence 0.1 spelled them."""

from collections.abc import Mapping
from typing import Any

from convergence_core.errors import Problem

_STABILITY = "use_stability"
_NO_FREEZING = (
    "must not keep the arm that was pulled most: on equal terms that was the wrong arm in 29 of 100 "
    "systems, and Thompson sampling in 1"
)


def translated(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Return settings in our spelling, and what has no place there.

    ``reward_evaluator.metrics`` become ``reward_metrics``. ``selection_strategy`` is taken out where it
    asks for plain Thompson sampling, which is what there is.
    """
    ours = dict(values)
    problems: list[Problem] = []
    if "cache_ttl_seconds" in ours:
        problems.append(
            _refused(
                "cache_ttl_seconds",
                "must be left out: every request sees the latest rewards",
                ours.pop("cache_ttl_seconds"),
                "Remove it.",
            )
        )
    strategy = ours.pop("selection_strategy", None)
    if isinstance(strategy, Mapping):
        if strategy.get(_STABILITY, True):
            problems.append(
                _refused(
                    f"selection_strategy.{_STABILITY}",
                    _NO_FREEZING,
                    strategy.get(_STABILITY, True),
                    "Write `use_stability: false`, or remove `selection_strategy`.",
                )
            )
        if strategy.get("exploration_bonus", 0):
            problems.append(
                _refused(
                    "selection_strategy.exploration_bonus",
                    "must be 0: posterior draws explore by themselves",
                    strategy["exploration_bonus"],
                    "Remove it; `floor` spreads a share of the requests evenly.",
                )
            )
    elif strategy is not None:
        ours["selection_strategy"] = strategy
    evaluator = ours.pop("reward_evaluator", None)
    if isinstance(evaluator, Mapping):
        problems += _evaluated(evaluator, ours)
    elif evaluator is not None:
        ours["reward_evaluator"] = evaluator
    return ours, problems


def _evaluated(evaluator: Mapping[str, Any], ours: dict[str, Any]) -> list[Problem]:
    """Turn an evaluator into ``reward_metrics``; return what cannot be turned."""
    problems = []
    custom = evaluator.get("custom_evaluator")
    if isinstance(custom, Mapping) and custom.get("enabled"):
        problems.append(
            _refused(
                "reward_evaluator.custom_evaluator",
                "must not be enabled: a serving process runs no code that its state names",
                custom.get("function"),
                "Call the function yourself, and give `runtime_update` its result as `reward`.",
            )
        )
    metrics = evaluator.get("metrics", [])
    found = []
    for place, metric in enumerate(metrics if isinstance(metrics, list) else []):
        plain = dict(metric) if isinstance(metric, Mapping) else metric
        if isinstance(plain, dict) and not plain.pop("normalize", True):
            problems.append(
                _refused(
                    f"reward_evaluator.metrics.{place}.normalize",
                    "must be true: weights are shares of those that are given",
                    False,
                    "Remove it, and scale the signal to [0, 1] before it is told.",
                )
            )
        found.append(plain)
    if found:
        ours.setdefault("reward_metrics", found)
    return problems


def _refused(key: str, rule: str, value: object, fix: str) -> Problem:
    return Problem(key=key, rule=rule, value=repr(value)[:80], fix=fix)
