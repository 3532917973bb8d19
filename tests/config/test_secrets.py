"""A secret written in a configuration is refused, and no message shows it."""

from typing import Any

import pytest

from convergence_core.config import parse_configuration, parse_mapping
from convergence_core.config.secrecy import is_env_name, is_only_references, looks_like_secret
from convergence_core.errors import ConfigurationError
from tests.support.config_examples import HTTP_ENDPOINT as HTTP, edited

# Put together at run time, so that no scanner takes the test for a leak.
SECRETS = {
    "openai": "sk-" + "proj-Abcdefghij0123456789",
    "plain openai": "sk-" + "abcdefghijklmnopqrstuvwxyz123456",
    "groq": "gsk" + "_abcdefghijklmnop0123456789",
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "google": "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "github": "ghp" + "_0123456789abcdefghijklmnopqrstuvwxyz",
    "slack": "xoxb" + "-1234567890-abcdefghij",
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "hexadecimal": "0123456789abcdef" * 3,
    "base64": "dGhpc0lzQVZlcnlTZWNyZXRUb2tlbjEyMw==",
}


def refused(changes: dict[str, Any]) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        parse_mapping(edited(changes, HTTP))
    return caught.value


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_secret_instead_of_an_environment_name_is_refused_unseen(secret):
    for auth in (
        {"type": "bearer", "token_env": secret},
        {"type": "basic", "username": "u", "password_env": secret},
    ):
        error = refused({"api/auth": auth})
        (problem,) = error.problems
        assert problem.key.endswith("_env")
        assert "environment variable" in problem.rule
        assert secret not in str(error)
        assert secret[:8] not in str(error)


@pytest.mark.parametrize(
    "name", ["OPENAI-KEY", "$OPENAI_KEY", "${OPENAI_KEY}", "my key", "1KEY", "", "A" * 129]
)
def test_what_is_no_environment_name_is_refused_unseen(name):
    error = refused({"api/auth": {"type": "bearer", "token_env": name}})
    assert "must be the name of an environment variable" in str(error)
    assert not name or name not in str(error)


@pytest.mark.parametrize(
    "name",
    [
        "API_KEY",
        "openai_api_key",
        "_x",
        "A",
        "MY_COMPANY_PRODUCTION_OPENAI_API_KEY_2",
        "OpenAiKey",
    ],
)
def test_environment_names_are_accepted(name):
    assert is_env_name(name)
    auth = {"type": "bearer", "token_env": name}
    assert parse_mapping(edited({"api/auth": auth}, HTTP)).api.auth.token_env == name


@pytest.mark.parametrize(
    "header",
    ["Authorization", "authorization", "X-Api-Key", "api-key", "x-goog-api-key", "Cookie",
     "Proxy-Authorization", "X-Auth-Token", "X-Secret", "Ocp-Apim-Subscription-Key"],
)  # fmt: skip
@pytest.mark.parametrize("value", ["hunter2", "Bearer hunter2", "Bearer ${TOKEN}hunter2"])
def test_header_with_a_literal_secret_is_refused_unseen(header, value):
    error = refused({f"api/request/headers/{header}": value})
    (problem,) = error.problems
    assert problem.key == f"api.request.headers.{header}"
    assert "${MY_TOKEN}" in problem.fix
    assert "hunter2" not in str(error)


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_known_secret_is_refused_anywhere(secret):
    if not looks_like_secret(secret) or secret[:3] in {"012", "dGh"}:
        return  # without a known form, only places for secrets are looked at
    for path in ("api/request/headers/X-Trace", "api/request/body", "api/description"):
        error = refused({path: f"a {secret} b"})
        assert [problem.key for problem in error.problems] == [path.replace("/", ".")]
        assert secret not in str(error)


def test_unknown_keys_and_wrong_types_do_not_show_secrets():
    error = refused({"api/auth": {"type": "bearer", "token_env": "T", "token": "hunter2hunter2"}})
    assert "hunter2" not in str(error)
    assert "`token_env`" in str(error)
    error = refused({"api/request/timeout_seconds": SECRETS["openai"]})
    assert SECRETS["openai"] not in str(error)
    error = refused({"api/auth": "hunter2 " + SECRETS["openai"]})
    assert SECRETS["openai"] not in str(error)


def test_json_of_a_configuration_holds_names_only():
    changes = {
        "api/auth": {"type": "bearer", "token_env": "BOT_TOKEN"},
        "api/request/headers": {"X-Api-Key": "${BOT_KEY}"},
    }
    text = parse_mapping(edited(changes, HTTP)).to_json()
    assert "BOT_TOKEN" in text
    assert "${BOT_KEY}" in text


@pytest.mark.parametrize(
    ("value", "only"),
    [
        ("${A}", True),
        ("Bearer ${A}", True),
        ("Basic ${USER}:${PASSWORD}", True),
        ("Bearer abc", False),
        ("${A}abc", False),
        ("$A", False),
        ("", False),
    ],
)
def test_references_alone_are_no_secret(value, only):
    assert is_only_references(value) is only


@pytest.mark.parametrize(
    "text",
    ["llama-3.3-70b-versatile", "gpt-4o-mini-2024-07-18", "prompts/system_v2.md",
     "sentence-transformers/all-MiniLM-L6-v2", "text-embedding-3-large", "sk-learn", ""],
)  # fmt: skip
def test_names_of_models_and_files_are_no_secrets(text):
    assert not looks_like_secret(text)


CREDENTIALS = "postgresql://bob:hunter2@db.example.com/journal"


@pytest.mark.parametrize("written", [CREDENTIALS, "${" + CREDENTIALS + "}", "hunter2 ${JOURNAL}"])
def test_journal_is_named_by_environment_variable_only(written):
    (problem,) = refused({"storage/journal": written}).problems
    assert problem.key == "storage.journal"
    assert "`${JOURNAL_URL}`" in problem.fix
    assert "hunter2" not in str(problem)


def test_secret_between_the_braces_of_the_journal_is_refused_unseen():
    error = refused({"storage/journal": "${" + SECRETS["aws"] + "}"})
    assert [problem.key for problem in error.problems] == ["storage.journal"]
    assert SECRETS["aws"] not in str(error)


@pytest.mark.parametrize(
    "path",
    ["api/description", "api/request/body", "api/request/headers/X-Db", "api/request/query/a",
     "storage/path", "output/save_path", "evaluation/test_cases/path"],
)  # fmt: skip
def test_url_with_credentials_is_refused_anywhere_unseen(path):
    error = refused({path: CREDENTIALS})
    assert path.replace("/", ".") in [problem.key for problem in error.problems]
    assert "hunter2" not in str(error)


@pytest.mark.parametrize("key", ["key", "api_key", "access_token", "sig"])
def test_url_with_a_secret_parameter_is_refused_unseen(key):
    error = refused({"api/endpoint": f"https://example.com/?{key}=hunter2"})
    assert "hunter2" not in str(error)
    assert f"`{key}`" in str(error)


def test_broken_yaml_does_not_show_secrets():
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(f"api:\n  auth: [token: {SECRETS['openai']}\n")
    assert SECRETS["openai"] not in str(caught.value)
