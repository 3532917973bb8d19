"""Normalization of a file's spellings and shorthands to the form of the models.

Works on plain data before validation, so every value may have any type. Unrecognized values are
left for the models to reject.
"""

import copy
from typing import Any
from urllib.parse import urlsplit

from convergence_core.config.api import CHAT_KINDS, KEY_HEADERS
from convergence_core.config.evaluation import provider_of
from convergence_core.config.problems import Report
from convergence_core.config.schema import DIRECTIONS, METRIC_TYPES, PARAMETER_TYPES
from convergence_core.config.secrecy import shown
from convergence_core.config.source import ConfigSource, Path

_BAD = {"latency_ms": 5000.0, "first_token_ms": 5000.0, "cost_usd": 1.0, "tool_calls": 10.0}
"""Default values with reward 0, for metrics where lower is better."""
_OF_ENDPOINT = ("endpoint", "api_key_env")
"""Keys of ``llm`` that belong together: an API key is for one endpoint."""


def normalize(data: dict[str, Any], source: ConfigSource, *, allow_callable: bool) -> Report:
    """Return the data in the models' form; the argument is not changed."""
    n = Report(source=source, data=copy.deepcopy(data))
    _api(n, allow_callable=allow_callable)
    _parameters(n)
    _evaluation(n, allow_callable=allow_callable)
    _auth(n)
    _cache(n)
    _llms(n)
    return n


def mapping_at(holder: Any, *keys: str) -> dict[str, Any]:
    """Return the mapping at these keys, or a new empty one if there is none."""
    for key in keys:
        holder = holder.get(key) if isinstance(holder, dict) else None
    return holder if isinstance(holder, dict) else {}


# -- api


def _api(n: Report, *, allow_callable: bool) -> None:
    api = mapping_at(n.data, "api")
    if api and api.get("kind") is None:
        api["kind"] = _guess_kind(api, allow_callable=allow_callable)


def _guess_kind(api: dict[str, Any], *, allow_callable: bool) -> str:
    for kind in ("function", "plugin"):
        if api.get(kind) is not None:
            return kind
    models = mapping_at(api, "models").values()
    endpoints = [api.get("endpoint"), *(mapping_at(entry).get("endpoint") for entry in models)]
    written = [item for item in endpoints if isinstance(item, str)]
    if not written:
        has_none = api.get("endpoint") is None and api.get("models") is None
        return "function" if allow_callable and has_none else "http"
    request, response = mapping_at(api, "request"), mapping_at(api, "response")
    of_http = [request.get(key) for key in ("method", "body")]
    is_http = any(value is not None for value in (*of_http, response.get("result_field")))
    return "openai" if not is_http and all(map(_is_chat_url, written)) else "http"


def _is_chat_url(url: str) -> bool:
    try:
        path = urlsplit(url).path.rstrip("/")
    except ValueError:
        return False
    return path.endswith(("/v1", "/chat/completions"))


def _auth(n: Report) -> None:
    """Choose the kind's form of authentication if only the key's variable is set."""
    api = mapping_at(n.data, "api")
    auth, kind = mapping_at(api, "auth"), api.get("kind")
    if not isinstance(kind, str) or kind not in (*CHAT_KINDS, "agno", "plugin", "browserbase"):
        return
    if auth.get("type") is None and auth.get("token_env") is not None:
        is_own = kind in ("azure", "anthropic", "browserbase")
        auth["type"] = "api_key" if is_own else "bearer"
    if auth.get("type") == "api_key" and auth.get("header_name") is None and kind in KEY_HEADERS:
        auth["header_name"] = KEY_HEADERS[kind]


# -- search_space


def _parameters(n: Report) -> None:
    path: Path = ("search_space", "parameters")
    parameters = mapping_at(n.data, *map(str, path))
    for name, parameter in parameters.items():
        place = (*path, name)
        if isinstance(parameter, list):
            parameters[name] = {"type": "categorical", "choices": parameter}
            n.renamed[(*place, "choices")] = place
        elif isinstance(parameter, dict):
            _parameter(n, parameter, place)


def _parameter(n: Report, parameter: dict[str, Any], path: Path) -> None:
    kind = parameter.get("type")
    if isinstance(kind, str):
        parameter["type"] = kind = PARAMETER_TYPES.get(kind, kind)
    when = parameter.get("when")
    if isinstance(when, dict):
        for name, value in when.items():
            if not isinstance(value, list):
                when[name] = [value]
                n.renamed[(*path, "when", name, 0)] = (*path, "when", name)


# -- evaluation


def _evaluation(n: Report, *, allow_callable: bool) -> None:
    evaluation = mapping_at(n.data, "evaluation")
    cases = evaluation.get("test_cases")
    if isinstance(cases, str | list):
        key = "path" if isinstance(cases, str) else "inline"
        evaluation["test_cases"] = {key: cases}
        n.renamed["evaluation", "test_cases", key] = ("evaluation", "test_cases")
    metrics = mapping_at(evaluation, "metrics")
    others = [metric for name, metric in metrics.items() if name != "cost_usd"]
    if costs_unknown(n.data) and any(  # without a weight the default is 1
        isinstance(metric, dict) and metric.get("weight") != 0 for metric in others
    ):
        metrics["cost_usd"]["weight"] = 0
    for name, metric in metrics.items():
        if isinstance(metric, dict):
            if metric.get("type") == "llm_judge" and not {"rubric", "rubric_path"} & metric.keys():
                metric["rubric"] = _default_rubric(mapping_at(n.data, "api"))
            _metric(n, name, metric, has_function=allow_callable)


def _metric(n: Report, name: str, metric: dict[str, Any], *, has_function: bool) -> None:
    path: Path = ("evaluation", "metrics", name)
    _read_direction(n, metric, path)
    if metric.get("type") is None:
        metric.pop("type", None)
        guess = guess_metric(name, metric, has_function=has_function)
        if guess is not None:
            metric["type"] = guess
    kind = metric.get("type")
    if isinstance(kind, str) and kind in _BAD and metric.get("scale") is None:
        lower, bad = metric.get("direction") in (None, "lower"), _BAD[kind]
        metric["scale"] = {"good": 0.0, "bad": bad} if lower else {"good": bad, "bad": 0.0}
    if metric.get("direction") is None:
        scale = mapping_at(metric, "scale")
        worth: tuple[Any, Any] = scale.get("good"), scale.get("bad")
        is_known = all(isinstance(value, int | float) for value in worth)
        metric["direction"] = "lower" if is_known and not worth[0] > worth[1] else "higher"


def costs_unknown(data: dict[str, Any]) -> bool:
    """Return whether metric ``cost_usd`` measures an endpoint without a known price."""
    api = mapping_at(data, "api")
    return (
        isinstance(mapping_at(data, "evaluation", "metrics").get("cost_usd"), dict)
        and api.get("kind") == "http"
        and not data.get("prices")
        and mapping_at(api, "response").get("cost_field") is None
    )


def _default_rubric(api: dict[str, Any]) -> str:
    """Return the default rubric, derived from the description."""
    described = api.get("description")
    task = (
        f' This system: "{described.strip()}"'
        if isinstance(described, str) and described.strip()
        else ""
    )
    return (
        f"The answer does what this system is for, and what its input asks.{task} It is correct, complete "
        "and to the point; where an answer was expected, it says the same."
    )


def _read_direction(n: Report, metric: dict[str, Any], path: Path) -> None:
    """Read ``type: higher_is_better`` as a direction."""
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


def guess_metric(name: str, metric: dict[str, Any], *, has_function: bool) -> str | None:
    """Return the type of a metric that names none, or ``None`` if it is ambiguous."""
    function = metric.get("function")
    if name in {*_BAD, "success_rate"}:
        return name
    if metric.get("plugin") is not None:
        return "plugin"
    if function is not None:
        return "function"
    if name == "accuracy":
        return "exact_match"
    if name in METRIC_TYPES:
        return name
    return "function" if has_function else None


# -- cache and llm


def _cache(n: Report) -> None:
    """Read a plain value as the epoch, and ``false`` as ``off``, as YAML 1.1 does."""
    cache = n.data.get("cache")
    if isinstance(cache, str | int | float):
        cache = n.data["cache"] = {"epoch": cache}
        n.renamed[("cache", "epoch")] = ("cache",)
    if isinstance(cache, dict) and cache.get("epoch") is False:
        cache["epoch"] = "off"


def _llms(n: Report) -> None:
    """Read ``society.llm`` as ``llm``, and complete the judges' ``llm`` from it."""
    society = mapping_at(n.data, "society")
    if society.get("llm") is None:
        society.pop("llm", None)
    elif n.data.get("llm") is not None:
        rule = "cannot be combined with `llm`, which means the same"
        n.refuse(society, ("society", "llm"), rule, "Remove one of them.")
    else:
        n.data["llm"] = society.pop("llm")
        n.renamed[("llm",)] = ("society", "llm")
    general = n.data.get("llm")
    if isinstance(general, dict):
        n.rename(general, ("llm",), "base_url", "endpoint")
    for name, metric in mapping_at(n.data, "evaluation", "metrics").items():
        metric_llm = metric.get("llm") if isinstance(metric, dict) else None
        if isinstance(metric_llm, dict):
            path: Path = ("evaluation", "metrics", name, "llm")
            n.rename(metric_llm, path, "base_url", "endpoint")
            if isinstance(general, dict):
                _complete(n, metric_llm, general, path)


def _complete(n: Report, specific: dict[str, Any], general: dict[str, Any], path: Path) -> None:
    """Fill missing keys from the general ``llm``; an API key stays with its endpoint."""
    model = specific.get("model")
    is_elsewhere = specific.get("endpoint") is not None or (
        model is not None and provider_of(model) != provider_of(general.get("model"))
    )
    for key, value in general.items():
        is_written = specific.get(key) is not None or (key == "temperature" and key in specific)
        if not is_written and not (is_elsewhere and key in _OF_ENDPOINT):
            specific[key] = value
            n.renamed[(*path, key)] = n.origin(("llm", key))
