"""Both spellings of the original, and all shorthands, → the one form of the models.

Works on plain data before it is validated, so every value may still be of any type: what is not
understood is left as it stands, for the models to refuse.
"""

import copy
from typing import Any, get_args
from urllib.parse import urlsplit

from convergence_core.config.evaluation import MetricType
from convergence_core.config.normalize_calls import read_auth, read_cache, read_llms
from convergence_core.config.normalized import Normalized, mapping_at
from convergence_core.config.shown import shown
from convergence_core.config.source import ConfigSource, Path

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
_BAD = {"latency_ms": 5000.0, "first_token_ms": 5000.0, "cost_usd": 1.0}
"""Values worth reward 0 of metrics that count downwards, unless a scale is written."""
_LIMITS = {"threshold": "latency_ms", "budget_per_call": "cost_usd"}
"""Keys of the original that say such a value, and the types they are read for."""
_PLAIN_FUNCTIONS = ("exact_match", "similarity")


def normalize(data: dict[str, Any], source: ConfigSource, *, allow_callable: bool) -> Normalized:
    """Return the data in the models' form; the argument stays as it is."""
    n = Normalized(source=source, data=copy.deepcopy(data))
    _sections(n)
    _api(n, allow_callable=allow_callable)
    _parameters(n)
    _evaluation(n, allow_callable=allow_callable)
    read_auth(n)
    read_cache(n)
    read_llms(n)
    return n


def _sections(n: Normalized) -> None:
    n.data.pop("legacy", None)  # refused unless it is switched off
    if n.data.get("agent", 0) is None:
        del n.data["agent"]
    optimization = mapping_at(n.data, "optimization")
    algorithm = optimization.get("algorithm")
    if isinstance(algorithm, str):
        optimization["algorithm"] = ALGORITHMS.get(algorithm, algorithm)
    # Refused unless false, as earlier versions wrote it into the configuration of every stored run.
    mapping_at(n.data, "society", "rlp").pop("both_orders", None)
    output = mapping_at(n.data, "output")
    plots = output.get("visualizations")
    if isinstance(plots, list):
        named = [VISUALIZATIONS.get(p, p) if isinstance(p, str) else p for p in plots]
        output["visualizations"] = [p for i, p in enumerate(named) if p not in named[:i]]


def _api(n: Normalized, *, allow_callable: bool) -> None:
    api = mapping_at(n.data, "api")
    for key in ("adapter_enabled", "mock_mode"):  # refused unless false
        api.pop(key, None)
    n.rename(mapping_at(api, "auth"), ("api", "auth"), "api_key_header", "header_name")
    response = mapping_at(api, "response")
    if response.get("result_field") is not None and response.get("result_required") is None:
        response["result_required"] = True
    if api and api.get("kind") is None:
        api["kind"] = _guess_kind(api, allow_callable=allow_callable)


def _guess_kind(api: dict[str, Any], *, allow_callable: bool) -> str:
    if api.get("function") is not None:
        return "function"
    endpoints = [api.get("endpoint")]
    endpoints += [
        mapping_at(entry).get("endpoint") for entry in mapping_at(api, "models").values()
    ]
    written = [item for item in endpoints if isinstance(item, str)]
    if not written:
        has_none = api.get("endpoint") is None and api.get("models") is None
        return "function" if allow_callable and has_none else "http"
    request, response = mapping_at(api, "request"), mapping_at(api, "response")
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
    parameters = mapping_at(n.data, *map(str, path))
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
    evaluation = mapping_at(n.data, "evaluation")
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
    for name, metric in mapping_at(evaluation, "metrics").items():
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
    for key, owner in _LIMITS.items():
        if kind == owner:
            _read_limit(n, metric, path, key)
        elif key in metric and isinstance(kind, str):
            rule = f"is read for metrics of type `{owner}` only"
            n.refuse(metric, (*path, key), rule, "Use `scale`, `min` or `max`.")
    if isinstance(kind, str) and kind in _BAD and metric.get("scale") is None:
        lower, bad = metric.get("direction") in (None, "lower"), _BAD[kind]
        metric["scale"] = {"good": 0.0, "bad": bad} if lower else {"good": bad, "bad": 0.0}
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
    if name in {*_BAD, "success_rate"}:
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


def _read_limit(n: Normalized, metric: dict[str, Any], path: Path, key: str) -> None:
    """Turn the original's limit into a scale."""
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


def _direction(metric: dict[str, Any]) -> str:
    scale = mapping_at(metric, "scale")
    good, bad = scale.get("good"), scale.get("bad")
    if isinstance(good, int | float) and isinstance(bad, int | float):
        return "higher" if good > bad else "lower"
    return "higher"
