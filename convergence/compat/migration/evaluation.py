"""Migration of ``evaluation``."""

from typing import Any

from convergence.compat.migration.migrator import (
    Migrator,
    Path,
    Section,
    as_section,
    is_number,
    number,
    take,
)
from convergence_core.config.api import CHAT_KINDS
from convergence_core.config.normalize import METRIC_TYPES
from convergence_core.config.schema import DIRECTIONS

_OWN = ("latency_ms", "cost_usd", "success_rate")


def migrate_evaluation(m: Migrator, old: Section, whole: Section) -> Section:
    """Return our ``evaluation``."""
    path: Path = ("evaluation",)
    cases, metrics = old.pop("test_cases", None), old.pop("metrics", None)
    evaluator = _evaluator(m, take(old, "custom_evaluator"))
    new: Section = {}
    if isinstance(cases, dict):
        cases = _test_cases(m, cases)
    if cases is not None:
        new["test_cases"] = cases
    new |= m.keep_known(old, path)
    if metrics is not None:
        new["metrics"] = metrics
    if isinstance(metrics, dict):
        new["metrics"] = _metrics(m, metrics, has_evaluator=bool(evaluator), whole=whole)
        if evaluator and any(_leaves_it(metric) for metric in new["metrics"].values()):
            new["custom_evaluator"] = evaluator
        elif evaluator:
            m.drop((*path, "custom_evaluator"), "no metric uses it")
    return new


def _leaves_it(metric: Any) -> bool:
    metric = as_section(metric)
    return metric.get("type") == "function" and "function" not in metric


def _test_cases(m: Migrator, old: Section) -> Section:
    path: Path = ("evaluation", "test_cases")
    augmentation = take(old, "augmentation")
    if augmentation.get("enabled") is True:
        reason = "altered questions kept answers that no longer fit; write more test cases"
        m.drop((*path, "augmentation"), reason)
    return m.keep_known(old, path)


def _evaluator(m: Migrator, old: Section) -> Section:
    path: Path = ("evaluation", "custom_evaluator")
    new = m.keep_known(old, path)
    if new.get("enabled") is not True:
        if new:
            m.drop(path, "it was switched off")
        return {}
    m.say(
        path,
        "`module` is looked for beside this file and among installed modules; the "
        "evaluators of version 0.1 are not part of this program",
    )
    return new


def _metrics(m: Migrator, old: Section, *, has_evaluator: bool, whole: Section) -> Section:
    new: Section = {}
    for name, metric in old.items():
        path: Path = ("evaluation", "metrics", name)
        if not isinstance(metric, dict):
            new[name] = metric
        elif metric.get("type") == "rouge":
            m.drop(path, "`rouge` is not available yet")
        elif metric.get("type") == "llm_judge" and not {"rubric", "rubric_path"} & metric.keys():
            reason = "version 0.1 did not judge; `type: llm_judge` needs a `rubric` and an `llm`"
            m.drop(path, reason)
        else:
            new[name] = _metric(m, name, dict(metric), path, has_evaluator=has_evaluator)
    _unpriced(m, new, whole)
    return new


def _metric(m: Migrator, name: str, old: Section, path: Path, *, has_evaluator: bool) -> Section:
    direction = DIRECTIONS.get(str(old.get("type")))
    if direction is not None:
        del old["type"]
    function = old.get("function")
    if function in ("custom", "exact_match", "similarity"):
        del old["function"]
    new = m.keep_known(old, path)
    for key in ("weight", "threshold", "budget_per_call"):
        if key in new:
            new[key] = number(new[key])
    if "type" not in new:
        kind = _kind(name, function, has_evaluator=has_evaluator)
        new = ({"type": kind} if kind and kind != name else {}) | new
        if name in _OWN:
            _scale(m, name, new, path)
        _drop_direction(m, name, direction, path)
    for key, owner in (("threshold", "latency_ms"), ("budget_per_call", "cost_usd")):
        if key in new and new.get("type", name) != owner:
            del new[key]
            m.drop((*path, key), f"read for `{owner}` only")
    return new


def _drop_direction(m: Migrator, name: str, direction: str | None, path: Path) -> None:
    """Say what became of version 0.1's direction, which it never read."""
    if name in ("latency_ms", "cost_usd"):
        if direction == "higher":
            m.drop((*path, "type"), "version 0.1 read less as better, whatever it said")
    elif direction == "lower":
        reason = "version 0.1 ignored it: evaluators return what is better as more"
        m.drop((*path, "type"), f"`lower_is_better`; {reason}")


def _kind(name: str, function: Any, *, has_evaluator: bool) -> str | None:
    if name in _OWN:
        return name
    if name == "accuracy":
        if function in ("exact_match", "similarity"):
            return str(function)
        return "function" if has_evaluator else "exact_match"
    if has_evaluator:
        return "function"
    if function in ("exact_match", "similarity"):
        return str(function)
    return name if name in METRIC_TYPES else None


def _scale(m: Migrator, name: str, metric: Section, path: Path) -> None:
    key = {"latency_ms": "threshold", "cost_usd": "budget_per_call"}.get(name)
    limit = metric.pop(key, None) if key else None
    if is_number(limit) and limit > 0:
        metric.setdefault("scale", {"good": 0, "bad": limit})
        m.say((*path, "scale"), f"was `{key}`")


def _unpriced(m: Migrator, metrics: Section, whole: Section) -> None:
    """Version 0.1 priced every answer as GPT-4's; we know no price that nobody tells us."""
    cost = metrics.get("cost_usd")
    if not isinstance(cost, dict) or _tells_price(whole):
        return
    path: Path = ("evaluation", "metrics", "cost_usd")
    others = [item for name, item in metrics.items() if name != "cost_usd"]
    if any(isinstance(item, dict) and item.get("weight", 1) for item in others):
        weight = cost.get("weight", 1)
        cost["weight"] = 0
        m.say(
            path,
            f"the weight was {weight}, but the cost is unknown until `api.response.cost_field` "
            "says where answers tell it, or `prices.http.request` what each costs; version 0.1 "
            "took one price for all models",
        )


def _tells_price(whole: Section) -> bool:
    """Whether something says what a call costs: an answer, the table, or the file itself."""
    api = as_section(whole.get("api"))
    by_answer = bool(as_section(api.get("response")).get("cost_field"))
    by_request = not as_section(whole.get("prices")).keys().isdisjoint(("http", "function"))
    return by_answer or by_request or str(api.get("kind")) in CHAT_KINDS
