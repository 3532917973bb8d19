"""Rules of the API section for each kind of target, each by name."""

import pytest

from tests.support.config_examples import (
    CHAT,
    HTTP_ENDPOINT,
    REMOVED,
    Rule,
    check_rule,
    problems_of,
)

P = "search_space/parameters/"

API: dict[str, Rule] = {
    "nothing to call": (
        {"api/endpoint": REMOVED},
        "api.endpoint",
        "is required by kind `http`",
        "`function:`",
    ),
    "kind function without a function": (
        {"api/kind": "function", "api/endpoint": REMOVED},
        "api.function",
        "is required by kind `function`",
        "my_module:answer",
    ),
    "endpoint and function": (
        {"api/function": "a:b"},
        "api.endpoint",
        "has no effect with kind `function`",
        "Remove",
    ),
    "endpoint and models": (
        {"api/models": {"a": {"endpoint": "http://x"}}, P + "model": ["a"]},
        "api.endpoint",
        "cannot be combined with `models`",
        "Remove one",
    ),
    "models without a parameter": (
        {"api/models": {"a": {"endpoint": "http://x"}}, "api/endpoint": REMOVED},
        "search_space.parameters.model",
        "must be a categorical parameter",
        "choices: [a]",
    ),
    "model that may be inactive": (
        {
            "api/models": {"a": {"endpoint": "http://x"}},
            "api/endpoint": REMOVED,
            P + "model": {"type": "categorical", "choices": ["a"], "when": {"n": 1}},
        },
        "search_space.parameters.model.when",
        "must always be active",
        "Remove `when`",
    ),
    "URL without a scheme": (
        {"api/endpoint": "example.com/x"},
        "api.endpoint",
        "begins with http:// or https://",
        "https://",
    ),
    "URL with a wrong port": (
        {"api/endpoint": "http://x:99999/"},
        "api.endpoint",
        "must be a URL",
        "https://",
    ),
    "URL with a fragment": (
        {"api/endpoint": "http://x/#a"},
        "api.endpoint",
        "without a `#`",
        "Remove",
    ),
    "bearer without a token": (
        {"api/auth": {"type": "bearer"}},
        "api.auth.token_env",
        "is required by auth type `bearer`",
        "environment variable",
    ),
    "basic without a user": (
        {"api/auth": {"type": "basic", "password_env": "P"}},
        "api.auth.username",
        "is required by auth type `basic`",
        "username",
    ),
    "token without a type": (
        {"api/auth": {"token_env": "T"}},
        "api.auth.token_env",
        "has no effect with auth type `none`",
        "`type: bearer`",
    ),
    "header that auth sets": (
        {
            "api/auth": {"type": "bearer", "token_env": "T"},
            "api/request/headers": {"authorization": "Bearer ${T}"},
        },
        "api.request.headers.authorization",
        "cannot be combined with `api.auth`",
        "Remove",
    ),
    "header written twice": (
        {"api/request/headers": {"X-A": "1", "x-a": "2"}},
        "api.request.headers.x-a",
        "must be written once",
        "Remove one",
    ),
    "header of two lines": (
        {"api/request/headers": {"X-A": "1\r\nX-B: 2"}},
        "api.request.headers.X-A",
        "one line of ASCII",
        "line breaks",
    ),
    "type of a form": (
        {"api/request/headers": {"Content-Type": "application/x-www-form-urlencoded"}},
        "api.request.headers.Content-Type",
        "bodies are sent as JSON",
        "`api.function`",
    ),
    "header name with a space": (
        {"api/request/headers": {"X A": "1"}},
        'api.request.headers."X A"',
        "must be the name of an HTTP header",
        "letters",
    ),
    "response of a function": (
        {"api/endpoint": REMOVED, "api/function": "a:b", "api/response": {"cost_field": "c"}},
        "api.response.cost_field",
        "has no effect with kind `function`",
        "from the function instead",
    ),
    "messages with http": (
        {"api/request/messages": [{"role": "user", "content": "x"}]},
        "api.request.messages",
        "has no effect with kind `http`",
        "`request.body`",
    ),
}

OF_CHAT: dict[str, Rule] = {
    "body with openai": (
        {"api/request/body": {"a": 1}},
        "api.request.body",
        "has no effect with kind `openai`",
        "`request.messages`",
    ),
    "result field with openai": (
        {"api/response/result_field": "x"},
        "api.response.result_field",
        "has no effect with kind `openai`",
        "Remove",
    ),
}


@pytest.mark.parametrize("name", API)
def test_rule_of_http_is_reported_where_it_is_broken(name):
    check_rule(API[name], HTTP_ENDPOINT)


@pytest.mark.parametrize("name", OF_CHAT)
def test_rule_of_openai_is_reported_where_it_is_broken(name):
    check_rule(OF_CHAT[name], CHAT)


def test_of_a_header_beside_a_broken_auth_nothing_is_said():
    broken = {
        "api/auth": {"type": "bearer", "token_env": ["T"]},
        "api/request/headers": {"authorization": "Bearer ${T}"},
    }
    assert [problem.key for problem in problems_of(broken, HTTP_ENDPOINT)] == [
        "api.auth.token_env"
    ]
