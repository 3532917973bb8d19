"""All spellings and shorthands mean one configuration."""

from typing import Any

import pytest

from convergence_core.config import (
    BooleanParam,
    CategoricalParam,
    FloatParam,
    MetricConfig,
    ParameterConfig,
    ScaleConfig,
    parse_mapping,
)
from tests.support.config_examples import REMOVED, edited


def parameter(written: Any) -> ParameterConfig:
    configuration = parse_mapping(edited({"search_space/parameters/x": written}))
    return configuration.search_space.parameters["x"]


def metric(name: str, written: dict[str, Any], **more: Any) -> MetricConfig:
    data = edited({f"evaluation/metrics/{name}": written, "api/kind": "function", **more})
    return parse_mapping(data).evaluation.metrics[name]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (
            {"type": "continuous", "min": 0, "max": 1},
            FloatParam(type="float", min=0.0, max=1.0),
        ),
        (
            {"type": "continuous", "min": 0, "max": 1, "step": 0.5},
            FloatParam(type="float", min=0.0, max=1.0, step=0.5),
        ),
        (["a", 2], CategoricalParam(type="categorical", choices=["a", 2])),
        ({"type": "bool", "default": None}, BooleanParam(type="boolean")),
        (
            {"type": "boolean", "when": {"m": "a"}},
            BooleanParam(type="boolean", when={"m": ["a"]}),
        ),
    ],
)
def test_parameters(written, meant):
    assert parameter(written) == meant


@pytest.mark.parametrize(
    ("name", "written", "type_", "direction", "scale"),
    [
        ("accuracy", {"weight": 1.0}, "exact_match", "higher", None),
        ("numeric", {}, "numeric", "higher", None),
        ("own", {"function": "a:b", "type": "lower_is_better"}, "function", "lower", None),
        ("latency_ms", {}, "latency_ms", "lower", ScaleConfig(good=0.0, bad=5000.0)),
        (
            "latency_ms",
            {"type": "lower_is_better", "scale": {"good": 0, "bad": 200}},
            "latency_ms",
            "lower",
            ScaleConfig(good=0.0, bad=200.0),
        ),
        (
            "latency_ms",
            {"scale": {"good": 9, "bad": 1}},
            "latency_ms",
            "higher",
            ScaleConfig(good=9.0, bad=1.0),
        ),
        ("cost_usd", {}, "cost_usd", "lower", ScaleConfig(good=0.0, bad=1.0)),
        (
            "price",
            {"type": "cost_usd", "scale": {"good": 0, "bad": 0.1}},
            "cost_usd",
            "lower",
            ScaleConfig(good=0.0, bad=0.1),
        ),
        ("success_rate", {}, "success_rate", "higher", None),
        (
            "far",
            {"type": "numeric", "scale": {"good": 0, "bad": 3}},
            "numeric",
            "lower",
            ScaleConfig(good=0.0, bad=3.0),
        ),
    ],
)
def test_metrics(name, written, type_, direction, scale):
    read = metric(name, written)
    assert (read.type, read.direction, read.scale) == (type_, direction, scale)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"api/function": "a:b"}, "function"),
        ({"api/endpoint": "https://x/v1"}, "openai"),
        ({"api/endpoint": "https://x/v1/"}, "openai"),
        ({"api/endpoint": "https://x/v1/chat/completions?api-version=1"}, "openai"),
        ({"api/endpoint": "https://x/v1/chat"}, "http"),
        ({"api/endpoint": "https://x/v1", "api/request": {"body": {"a": 1}}}, "http"),
        ({"api/endpoint": "https://x/v1", "api/request": {"method": "POST"}}, "http"),
        ({"api/endpoint": "https://x/v1", "api/response": {"result_field": "a[0]"}}, "http"),
        ({"api/endpoint": "https://x/v1", "api/kind": "http"}, "http"),
        ({"api/endpoint": "https://x/a", "api/kind": "openai"}, "openai"),
    ],
)
def test_kind_is_guessed_when_it_is_plain(changes, kind):
    assert parse_mapping(edited({"api/function": REMOVED, **changes})).api.kind == kind


def test_input_is_not_changed():
    data = edited({"search_space/parameters/x": ["a"]})
    before = repr(data)
    parse_mapping(data)
    assert repr(data) == before
