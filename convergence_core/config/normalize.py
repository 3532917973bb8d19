"""Both spellings of the original, and all shorthands, → the one form of the models.

Works on plain data before it is validated, so every value may still be of any type: what is not
understood is left as it stands, for the models to refuse.
"""

import copy
from dataclasses import dataclass, field
from typing import Any, get_args
from urllib.parse import urlsplit

from convergence_core.config.evaluation import MetricType
from convergence_core.config.shown import shown
from convergence_core.config.source import Path, Source
from convergence_core.errors import Problem

METRIC_TYPES: frozenset[str] = frozenset(get_args(MetricType))

PARAMETER_TYPES = {"continuous": "float", "bool": "boolean"}
DIRECTIONS = {"higher_is_better": "higher", "lower_is_better": "lower"}
ALGORITHMS = {"genetic": "evolution", "mab_only": "thompson"}
VISUALIZATIONS = {
    "score_over_time": "learning_curve",
    "parameter_importance": "parameter_effects",
    "pareto_front": "tradeoffs",
    "cost_vs_quality": "tradeoffs",
}
LATENCY_BAD_MS = 5000.0
COST_BAD_USD = 1.0
_PLAIN_FUNCTIONS = ("exact_match", "similarity")


@dataclass(slots=True)
class Normalized:
    """Data in the models' form, and what the user wrote for each part of it."""

    source: Source
    data: dict[str, Any]
    renamed: dict[Path, Path] = field(default_factory=dict)
    """New path → path as written."""
    problems: list[Problem] = field(default_factory=list)
    broken: list[Path] = field(default_factory=list)
    """Paths whose value was refused and removed."""

    def origin(self, path: Path) -> Path:
        """Return the path the user wrote for a path of the normalized data."""
        for end in range(len(path), 0, -1):
            written = self.renamed.get(path[:end])
            if written is not None:
                return (*written, *path[end:]) if len(written) >= end else written
        return path

    def rename(self, holder: dict[str, Any], path: Path, old: str, new: str) -> None:
        """Give a key its name of today; both spellings at once are a problem."""
        if old not in holder:
            return
        if new in holder:
            rule = f"must not stand beside `{new}`, which means the same"
            self.refuse(holder, (*path, old), rule, "Remove one of them.")
            return
        holder[new] = holder.pop(old)
        self.renamed[(*path, new)] = (*path, old)

    def refuse(self, holder: dict[str, Any], path: Path, rule: str, fix: str) -> None:
        """Note a problem with a key and take the key out."""
        value = holder.pop(str(path[-1]))
        self.problems.append(
            self.source.problem(path, rule, fix, value=shown(value, str(path[-1])))
        )
        self.broken.append(path)


def normalize(data: dict[str, Any], source: Source, *, allow_callable: bool) -> Normalized:
    """Return the data in the models' form; the argument stays as it is."""
    n = Normalized(source=source, data=copy.deepcopy(data))
    _sections(n)
    _api(n, allow_callable=allow_callable)
    _parameters(n)
    _evaluation(n, allow_callable=allow_callable)
    return n


def _mapping(holder: Any, *keys: str) -> dict[str, Any]:
    """Return the mapping at these keys; an unconnected empty one when there is none."""
    for key in keys:
        holder = holder.get(key) if isinstance(holder, dict) else None
    return holder if isinstance(holder, dict) else {}


def _sections(n: Normalized) -> None:
    n.data.pop("legacy", None)  # refused unless it is switched off
    if n.data.get("agent", 0) is None:
        del n.data["agent"]
    optimization = _mapping(n.data, "optimization")
    algorithm = optimization.get("algorithm")
    if isinstance(algorithm, str):
        optimization["algorithm"] = ALGORITHMS.get(algorithm, algorithm)
    output = _mapping(n.data, "output")
    plots = output.get("visualizations")
    if isinstance(plots, list):
        named = [VISUALIZATIONS.get(p, p) if isinstance(p, str) else p for p in plots]
        output["visualizations"] = [p for i, p in enumerate(named) if p not in named[:i]]


def _api(n: Normalized, *, allow_callable: bool) -> None:
    api = _mapping(n.data, "api")
    for key in ("adapter_enabled", "mock_mode"):  # refused unless false
        api.pop(key, None)
    n.rename(_mapping(api, "auth"), ("api", "auth"), "api_key_header", "header_name")
    response = _mapping(api, "response")
    if response.get("result_field") is not None and response.get("result_required") is None:
        response["result_required"] = True
    if api and api.get("kind") is None:
        api["kind"] = _guess_kind(api, allow_callable=allow_callable)


def _guess_kind(api: dict[str, Any], *, allow_callable: bool) -> str:
    if api.get("function") is not None:
        return "function"
    endpoints = [api.get("endpoint")]
    endpoints += [_mapping(entry).get("endpoint") for entry in _mapping(api, "models").values()]
    written = [item for item in endpoints if isinstance(item, str)]
    if not written:
        has_none = api.get("endpoint") is None and api.get("models") is None
        return "function" if allow_callable and has_none else "http"
    request, response = _mapping(api, "request"), _mapping(api, "response")
    is_http = any(request.get(key) is not None for key in ("method", "body"))
    is_http = is_http or any(
        response.get(key) is not None for key in ("success_field", "result_field", "error_field")
    )
    return "openai" if not is_http and all(map(_is_chat_url, written)) else "http"


def _is_chat_url(url: str) -> bool:
    try:
        path = urlsplit(url).path.rstrip("/")
    except ValueError:
        return False
    return path.endswith(("/v1", "/chat/completions"))


def _parameters(n: Normalized) -> None:
    path: Path = ("search_space", "parameters")
    parameters = _mapping(n.data, *map(str, path))
    for name, parameter in parameters.items():
        here = (*path, name)
        if isinstance(parameter, list):
            parameters[name] = {"type": "categorical", "choices": parameter}
            n.renamed[(*here, "choices")] = here
        elif isinstance(parameter, dict):
            _parameter(n, parameter, here)


def _parameter(n: Normalized, parameter: dict[str, Any], path: Path) -> None:
    kind = parameter.get("type")
    if kind == "discrete":
        has_values = parameter.get("values") is not None or parameter.get("choices") is not None
        kind = "categorical" if has_values else "int"
    if isinstance(kind, str):
        parameter["type"] = kind = PARAMETER_TYPES.get(kind, kind)
    if kind == "categorical":
        n.rename(parameter, path, "values", "choices")
    when = parameter.get("when")
    if isinstance(when, dict):
        for name, value in when.items():
            if not isinstance(value, list):
                when[name] = [value]
                n.renamed[(*path, "when", name, 0)] = (*path, "when", name)


def _evaluation(n: Normalized, *, allow_callable: bool) -> None:
    evaluation = _mapping(n.data, "evaluation")
    cases = evaluation.get("test_cases")
    at: Path = ("evaluation", "test_cases")
    if isinstance(cases, str | list):
        key = "path" if isinstance(cases, str) else "inline"
        evaluation["test_cases"] = {key: cases}
        n.renamed[(*at, key)] = at
    elif isinstance(cases, dict):
        cases.pop("augmentation", None)  # refused unless it is switched off
    evaluator = evaluation.get("custom_evaluator")
    has_evaluator = isinstance(evaluator, dict)
    if isinstance(evaluator, dict):
        if evaluator.get("enabled") is None:
            evaluator["enabled"] = evaluator.get("module") is not None
        if evaluator["enabled"] is False:
            del evaluation["custom_evaluator"]
            has_evaluator = False
    for name, metric in _mapping(evaluation, "metrics").items():
        if isinstance(metric, dict):
            _metric(n, name, metric, has_function=has_evaluator or allow_callable)


def _metric(n: Normalized, name: str, metric: dict[str, Any], *, has_function: bool) -> None:
    path: Path = ("evaluation", "metrics", name)
    _read_direction(n, metric, path)
    if metric.get("type") is None:
        metric.pop("type", None)
        kind = _guess_metric(name, metric, has_function=has_function)
        if kind is not None:
            metric["type"] = kind
    if metric.get("function") in ("custom", *_PLAIN_FUNCTIONS):  # the original's words
        del metric["function"]
    kind = metric.get("type")
    if kind == "latency_ms":
        _bounded(n, metric, path, "threshold", LATENCY_BAD_MS)
    elif kind == "cost_usd":
        _bounded(n, metric, path, "budget_per_call", COST_BAD_USD)
    for key, owner in (("threshold", "latency_ms"), ("budget_per_call", "cost_usd")):
        if key in metric and isinstance(kind, str):
            rule = f"is read for metrics of type `{owner}` only"
            n.refuse(metric, (*path, key), rule, "Use `scale`, `min` or `max`.")
    if metric.get("direction") is None:
        metric["direction"] = _direction(metric)


def _read_direction(n: Normalized, metric: dict[str, Any], path: Path) -> None:
    """Read the original's ``type: higher_is_better``, which means a direction."""
    written = metric.get("type")
    if not isinstance(written, str) or written not in DIRECTIONS:
        return
    meant, given = DIRECTIONS[written], metric.get("direction")
    if given is not None and given != meant:
        rule = f"must not contradict `direction: {shown(given)}`"
        n.refuse(metric, (*path, "type"), rule, "Remove one of them.")
    else:
        del metric["type"]
    metric["direction"] = meant
    n.renamed[(*path, "direction")] = (*path, "type")


def _guess_metric(name: str, metric: dict[str, Any], *, has_function: bool) -> str | None:
    function = metric.get("function")
    if name in {"latency_ms", "cost_usd", "success_rate"}:
        return name
    if isinstance(function, str) and function in _PLAIN_FUNCTIONS:
        return function
    if function is not None:
        return "function"
    if name in METRIC_TYPES:
        return name
    if name == "accuracy":
        return "exact_match"
    return "function" if has_function else None


def _bounded(
    n: Normalized, metric: dict[str, Any], path: Path, key: str, default_bad: float
) -> None:
    """Turn the original's limit into a scale, or set the default scale."""
    limit = metric.get(key)
    if limit is None:
        metric.pop(key, None)
    elif metric.get("scale") is not None:
        n.refuse(metric, (*path, key), "must not stand beside `scale`", "Remove one of them.")
    elif isinstance(limit, bool) or not isinstance(limit, int | float) or not limit > 0:
        n.refuse(metric, (*path, key), "must be a number above 0", "Write e.g. 5000.")
    else:
        metric["scale"] = {"good": 0, "bad": metric.pop(key)}
        n.renamed[(*path, "scale", "bad")] = (*path, key)
        n.renamed[(*path, "scale")] = (*path, key)
    if metric.get("scale") is None:
        lower = metric.get("direction") in (None, "lower")
        metric["scale"] = (
            {"good": 0.0, "bad": default_bad} if lower else {"good": default_bad, "bad": 0.0}
        )


def _direction(metric: dict[str, Any]) -> str:
    if metric.get("type") in ("latency_ms", "cost_usd") and metric.get("scale") is None:
        return "lower"
    scale = _mapping(metric, "scale")
    good, bad = scale.get("good"), scale.get("bad")
    if isinstance(good, int | float) and isinstance(bad, int | float):
        return "higher" if good > bad else "lower"
    return "higher"
