"""Rules of chat providers: endpoints, versions, time-outs, and how keys are sent."""

from typing import Any

import pytest

from convergence_core.config import AuthConfig, parse_mapping
from tests.support.config_examples import (
    CHAT,
    HTTP_ENDPOINT as HTTP,
    REMOVED,
    Rule,
    check_rule,
    edited,
    problems_of,
)

P = "search_space/parameters/"
M = "evaluation/metrics/"
AZURE = edited({"api/kind": "azure"}, HTTP)
GROQ = edited({"api/kind": "groq", "api/endpoint": REMOVED}, HTTP)
GEMINI = edited({"api/kind": "gemini", "api/endpoint": REMOVED}, HTTP)
OF_CHAT = "has no effect with kind"

RULES: dict[str, tuple[dict[str, Any], Rule]] = {
    "azure without an endpoint": (
        AZURE,
        ({"api/endpoint": REMOVED}, "api.endpoint", "is required by kind `azure`", "with a URL"),
    ),
    "version that is no date": (
        AZURE,
        ({"api/api_version": "latest"}, "api.api_version", "`YYYY-MM-DD`", "`2024-10-21`"),
    ),
    "version in the URL": (
        AZURE,
        (
            {"api/endpoint": "https://x.openai.azure.com/?api-version=2024-10-21"},
            "api.endpoint",
            "must not hold `api-version`",
            "`api.api_version`",
        ),
    ),
    "deployment that is a path": (
        AZURE,
        ({"api/deployment": "a/../b"}, "api.deployment", "name of a deployment", "not a URL"),
    ),
    "one deployment of several models": (
        AZURE,
        (
            {"api/deployment": "prod", P + "model": ["a", "b"]},
            "api.deployment",
            "cannot be combined with several models",
            "`api.models`",
        ),
    ),
    "version of openai": (
        CHAT,
        ({"api/api_version": "2024-10-21"}, "api.api_version", OF_CHAT, "`kind: azure`"),
    ),
    "stream of http": (
        HTTP,
        ({"api/request/stream": True}, "api.request.stream", OF_CHAT, "chat kinds"),
    ),
    "first token that is not streamed": (
        CHAT,
        (
            {M + "first_token_ms": {}},
            "evaluation.metrics.first_token_ms",
            "only while answers are streamed",
            "`stream: true`",
        ),
    ),
    "first token of http": (
        HTTP,
        (
            {M + "first_token_ms": {}},
            "evaluation.metrics.first_token_ms",
            "is not measured with kind `http`",
            "`latency_ms`",
        ),
    ),
    "header that the kind sets": (
        AZURE,
        (
            {"api/auth": {"token_env": "K"}, "api/request/headers": {"Api-Key": "${K}"}},
            "api.request.headers.Api-Key",
            "cannot be combined with `api.auth`",
            "Remove",
        ),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_rule_is_reported_where_it_is_broken(name):
    base, rule = RULES[name]
    check_rule(rule, base)


@pytest.mark.parametrize(
    ("base", "changes"),
    [
        (AZURE, {"api/api_version": "2024-10-21", "api/deployment": "bot-4o.1"}),
        (AZURE, {"api/api_version": "2025-01-01-preview", P + "model": ["a", "b"]}),
        (AZURE, {"api/deployment": "prod", P + "model": ["a"]}),
        (AZURE, {"api/auth": {"type": "bearer", "token_env": "ENTRA_TOKEN"}}),
        (GROQ, {}),
        (GROQ, {"api/endpoint": "http://127.0.0.1:1/openai/v1"}),
        (GEMINI, {"api/models": {"a": {"endpoint": "http://x/a"}}, P + "model": ["a"]}),
        (AZURE, {"api/endpoint": REMOVED, "api/models": {"a": {"endpoint": "http://x/a"}}, P + "model": ["a"]}),
        (CHAT, {"api/request": {"stream": True, "unsupported": "drop"}, M + "first_token_ms": {}}),
        (CHAT, {M + "cost_usd": {"max": 0.1}}),
    ],
)  # fmt: skip
def test_what_is_right_for_a_provider_is_accepted(base, changes):
    assert problems_of(changes, base) == []


@pytest.mark.parametrize(
    ("base", "written", "type_", "header"),
    [
        (AZURE, {"token_env": "K"}, "api_key", "api-key"),
        (AZURE, {"type": "api_key", "token_env": "K"}, "api_key", "api-key"),
        (AZURE, {"type": "api_key", "token_env": "K", "header_name": "x-own"}, "api_key", "x-own"),
        (AZURE, {"type": "bearer", "token_env": "K"}, "bearer", "x-api-key"),
        (AZURE, {}, "none", "x-api-key"),
        (GEMINI, {"token_env": "K"}, "bearer", "x-api-key"),
        (GEMINI, {"type": "api_key", "token_env": "K"}, "api_key", "x-goog-api-key"),
        (GROQ, {"token_env": "K"}, "bearer", "x-api-key"),
        (CHAT, {"token_env": "K"}, "bearer", "x-api-key"),
        (CHAT, {"type": "none", "token_env": "K"}, "none", "x-api-key"),
        (CHAT, {"type": "api_key", "token_env": "K"}, "api_key", "x-api-key"),
    ],
)  # fmt: skip
def test_a_key_is_sent_as_its_provider_takes_it(base, written, type_, header):
    auth: AuthConfig = parse_mapping(edited({"api/auth": written}, base)).api.auth
    assert (auth.type, auth.header_name) == (type_, header)


def test_an_endpoint_that_is_the_kinds_own_stays_unwritten():
    assert parse_mapping(GROQ).api.endpoint is None


@pytest.mark.parametrize("key", ["api/endpoint", "api/models/a/endpoint"])
def test_url_with_credentials_is_refused_unseen(key):
    changes: dict[str, Any] = {key: "https://user:hunter2@example.com/v1"}
    if key != "api/endpoint":
        changes |= {"api/endpoint": REMOVED, P + "model": ["a"]}
    (problem,) = problems_of(changes, AZURE)
    assert "no user name or password" in problem.rule
    assert "hunter2" not in str(problem)
