"""Rules of browser sessions: what may be asked of the provider, and what a minute costs."""

from typing import Any

import pytest

from convergence_core.config import parse_mapping
from tests.support.config_examples import MINIMAL, REMOVED, Rule, check_rule, edited, problems_of

BODY = "api/request/body"
BROWSER = edited(
    {
        "api/kind": "browserbase",
        "api/function": "scrape.py:run",
        "api/auth": {"token_env": "BROWSERBASE_API_KEY"},
        BODY: {"browserSettings": {"viewport": {"width": 1280, "height": 800}}},
        "prices": {"browserbase": {"minute": 0.002}},
    },
    MINIMAL,
)


def body(value: Any, key: str, rule: str, fix: str) -> tuple[dict[str, Any], Rule]:
    return BROWSER, ({BODY: value}, f"api.request.body{key}", rule, fix)


RULES: dict[str, tuple[dict[str, Any], Rule]] = {
    "no script": (
        BROWSER,
        ({"api/function": REMOVED}, "api.function", "is required by kind `browserbase`", "run"),
    ),
    "our mark": body({"userMetadata": {}}, ".userMetadata", "is written by the run", "releases"),
    "short": body({"timeout": 59}, ".timeout", "must be 60 to 21,600 seconds", "Correct"),
    "no length": body({"timeout": True}, ".timeout", "must be 60 to 21,600 seconds", "Correct"),
    "password": body(
        {"proxies": [{"type": "external", "password": "hunter2hunter2"}]},
        ".proxies",
        "must hold no password",
        "Use a proxy",
    ),
    "no mapping": body([1], "", "must be a mapping", "fields of a session"),
    "messages": (
        BROWSER,
        (
            {"api/request/messages": [{"role": "user", "content": "x"}]},
            "api.request.messages",
            "has no effect with kind `browserbase`",
            "body",
        ),
    ),
    "price of a request": (
        BROWSER,
        (
            {"prices": {"browserbase": {"minute": 1, "request": 1}}},
            "prices.browserbase.request",
            "is priced by the minute",
            "proxy_gb",
        ),
    ),
    "no price of a minute": (
        BROWSER,
        (
            {"prices": {"browserbase": {"proxy_gb": 1}}},
            "prices.browserbase.minute",
            "is required by kind `browserbase`",
            "as your plan says",
        ),
    ),
    "price of another kind": (
        MINIMAL,
        (
            {"prices": {"browserbase": {"minute": 1}}},
            "prices.browserbase",
            "has no effect",
            "Remove",
        ),
    ),
    "minutes of a model": (
        MINIMAL,
        (
            {"prices": {"gpt": {"input": 1, "output": 1, "minute": 1}}},
            "prices.gpt.minute",
            "has no effect on a model",
            "browserbase",
        ),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_a_wrong_session_or_price_is_refused(name):
    base, rule = RULES[name]
    check_rule(rule, base)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"region": "us-east-1", "timeout": 21_600, "proxies": True, "keepAlive": False},
        {"proxies": [{"type": "browserbase", "geolocation": {"country": "DE"}}]},
        {"browserSettings": {"os": "mac", "context": {"id": "c", "persist": True}}},
        {"browserSettings": {"allowedDomains": ["example.com"], "verified": True}},
    ],
)
def test_what_the_provider_takes_is_accepted(value):
    assert problems_of({BODY: value}, BROWSER) == []


def test_the_key_is_sent_in_the_providers_header():
    auth = parse_mapping(BROWSER).api.auth
    assert (auth.type, auth.header_name) == ("api_key", "x-bb-api-key")


def test_calls_per_second_may_name_the_providers_host():
    key = "optimization/execution/calls_per_second"
    assert problems_of({key: {"api.browserbase.com": 2}}, BROWSER) == []
