"""Rules of ``budget``, ``cache``, ``prices`` and ``storage.journal``."""

from typing import Any

import pytest

from convergence_core.config import CacheConfig, parse_configuration, parse_mapping
from tests.support.config_examples import (
    CHAT,
    HTTP_ENDPOINT as HTTP,
    MINIMAL,
    Rule,
    check_rule,
    edited,
    problems_of,
)

EPOCHS = "must be `run`, `off`, `forever` or a duration"
RULES: dict[str, tuple[dict[str, Any], Rule]] = {
    "dollars with their sign": (
        MINIMAL,
        ({"budget/max_usd": "$5"}, "budget.max_usd", "must be a number", "Write 5, without"),
    ),
    "calls with a comma": (
        MINIMAL,
        ({"budget/max_calls": "5,000"}, "budget.max_calls", "whole number", "Write 5000, without"),
    ),
    "epoch without a unit": (MINIMAL, ({"cache/epoch": 7}, "cache.epoch", EPOCHS, "`7d`")),
    "epoch in words": (MINIMAL, ({"cache/epoch": "7 days"}, "cache.epoch", EPOCHS, "`12h`")),
    "plain epoch": (MINIMAL, ({"cache": "weekly"}, "cache", EPOCHS, "`7d`")),
    "input without output": (
        CHAT,
        ({"prices/m": {"input": 1}}, "prices.m.output", "is required beside `input`", "both"),
    ),
    "entry without a price": (
        CHAT,
        ({"prices/m": {}}, "prices.m", "must set a price", "input: 0.15"),
    ),
    "price of a provider": (
        CHAT,
        ({"prices/openai": {"request": 1}}, "prices.openai", "name of a model", "gpt-4o-mini"),
    ),
    "tokens of http": (
        HTTP,
        (
            {"prices/http": {"request": 1, "input": 1}},
            "prices.http.input",
            "priced by request",
            "Write only",
        ),
    ),
    "http without a price": (
        HTTP,
        ({"prices/http": {}}, "prices.http.request", "is required by kind `http`", "0.002"),
    ),
    "price of a function that is none": (
        HTTP,
        ({"prices/function": {"request": 1}}, "prices.function", "with kind `http`", "Remove"),
    ),
    "journal by a bare name": (
        MINIMAL,
        ({"storage/journal": "JOURNAL"}, "storage.journal", "must be `${…}`", "${JOURNAL_URL}"),
    ),
    "a working copy of nothing": (
        MINIMAL,
        ({"storage/local": "./here"}, "storage.local", "has no effect with a folder", "s3://"),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_rule_is_reported_where_it_is_broken(name):
    base, rule = RULES[name]
    check_rule(rule, base)


@pytest.mark.parametrize(
    ("base", "changes"),
    [
        (MINIMAL, {"budget": {"max_usd": 0.5, "max_tokens": 1, "max_minutes": 0.5}}),
        (MINIMAL, {"budget": {"max_usd": 20, "allow_unknown_prices": True}}),
        (CHAT, {"prices": {"a": {"input": 0, "output": 0}, "b": {"request": 0.0}}}),
        (CHAT, {"prices": {"gpt-4.1/x": {"input": 1, "output": 2, "cached_input": 0.1}}}),
        (CHAT, {"prices/m": {"input": 1, "output": 2, "cache_write": 1.5}}),
        (CHAT, {"prices/m": {"input": 1, "output": 2, "max_output_tokens": 16384}}),
        (CHAT, {"prices": {"a": {"max_output_tokens": 9}}}),
        (HTTP, {"prices/http": {"request": 0.002}}),
        (MINIMAL, {"prices/function": {"request": 0.002}}),
        (MINIMAL, {"storage/journal": "${JOURNAL_URL}"}),
        (MINIMAL, {"storage": {"path": "s3://bucket/nightly", "local": "./here"}}),
        (MINIMAL, {"storage": {"path": "az://container"}}),
    ],
)
def test_what_is_right_is_accepted(base, changes):
    assert problems_of(changes, base) == []


WHOLE = {"input": 1, "output": 1}


@pytest.mark.parametrize("key", ["input", "output", "cached_input", "cache_write", "request"])
@pytest.mark.parametrize("price", [-0.1, "0.1", True, 1e300])
def test_what_is_no_price_is_refused(key, price):
    found = problems_of({"prices/m": {**WHOLE, key: price}}, CHAT)
    assert [problem.key for problem in found] == [f"prices.m.{key}"]


@pytest.mark.parametrize(
    ("written", "epoch"),
    [
        ({"epoch": "run"}, "run"),
        ({"epoch": "off"}, "off"),
        ({"epoch": False}, "off"),
        ({"epoch": None}, "run"),
        ({"epoch": "90m"}, "90m"),
        ("forever", "forever"),
        ("off", "off"),
        (False, "off"),
        ("7d", "7d"),
        (None, "run"),
        ({}, "run"),
    ],
)
def test_epochs(written, epoch):
    assert parse_mapping(edited({"cache": written})).cache.epoch == epoch


def test_off_is_read_from_yaml_of_either_version():
    text = (
        "api: {name: a, function: 'm:f'}\n"
        "search_space: {parameters: {a: {type: boolean}}}\n"
        "evaluation: {test_cases: [{input: 1, expected: 1}], metrics: {exact_match: {}}}\n"
    )
    for cache in ("cache: off", "cache: {epoch: off}", "cache: {epoch: false}", "cache: false"):
        assert parse_configuration(text + cache + "\n").cache.epoch == "off"


@pytest.mark.parametrize(
    ("epoch", "shared", "seconds"),
    [
        ("run", False, None),
        ("off", False, None),
        ("forever", True, None),
        ("30s", True, 30.0),
        ("90m", True, 5400.0),
        ("12h", True, 43_200.0),
        ("7d", True, 604_800.0),
        ("2w", True, 1_209_600.0),
    ],
)
def test_an_epoch_says_whose_answers_may_be_used_and_how_old(epoch, shared, seconds):
    cache = CacheConfig(epoch=epoch)
    assert (cache.shared, cache.max_age_s) == (shared, seconds)
