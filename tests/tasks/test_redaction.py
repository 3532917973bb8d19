"""No secret in any text, and clean texts left as they are."""

import base64
import json
import urllib.parse

import pytest

from convergence_core.errors import ConfigurationError
from convergence_core.records import Json
from tasks.authentication import check_environment
from tasks.redaction import MASK, Redactor, Secrets, redact_json
from tests.support.configurations import http_api, loaded

VALUE = 'sécret "with" back\\slash & space/1'


@pytest.mark.parametrize(
    "text",
    [
        VALUE,
        f"in the middle {VALUE} of a text",
        json.dumps({"key": VALUE}),
        json.dumps({"key": VALUE}, ensure_ascii=False),
        urllib.parse.quote(VALUE, safe=""),
        urllib.parse.quote_plus(VALUE),
        base64.b64encode(VALUE.encode()).decode(),
        repr([VALUE]),
    ],
)
def test_named_values_are_replaced_however_they_are_written(text):
    redact = Redactor(["KEY"], secrets=Secrets({"KEY": VALUE}))
    assert "with" not in redact(text)
    assert base64.b64encode(VALUE.encode()).decode() not in redact(text)
    assert MASK in redact(text)


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-" + "a1B2" * 8,
        "sk-ant-api03-" + "a1B2" * 8,
        "gsk_" + "a1B2" * 8,
        "hf_" + "a1B2" * 8,
        "AKIA" + "ABCD1234" * 2,
        "AIza" + "a" * 35,
        "ghp_" + "a1" * 18,
        "github_pat_" + "a1" * 20,
        "glpat-" + "a1" * 10,
        "xoxb-" + "1234567890-abc",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_keys_of_well_known_forms_are_replaced_without_being_named(secret):
    assert secret not in Redactor()(f"before {secret} after")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abc123def456ghi7", "abc123def456ghi7"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZDE=", "dXNlcjpwYXNzd29yZDE="),
        ("api_key=9f8e7d6c5b4a3f2e", "9f8e7d6c5b4a3f2e"),
        ('{"access_token": "9f8e7d6c5b4a3f2e"}', "9f8e7d6c5b4a3f2e"),
        ("OPENAI_API_KEY: 9f8e7d6c5b4a3f2e", "9f8e7d6c5b4a3f2e"),
        ("https://user:hunter2pass@host/path", "hunter2pass"),
    ],
)
def test_values_beside_telling_words_are_replaced_and_the_words_stay(text, secret):
    redacted = Redactor()(text)
    assert secret not in redacted
    assert MASK in redacted


@pytest.mark.parametrize(
    "text",
    [
        "The token economy is a key concept; keys and secrets of cooking.",
        "A bearer of bad news, basic training, password reset instructions.",
        "sk-learn and pk-fire; AKIA is a word; eyJ too; see https://example.com:80/a",
        '{"max_tokens": 256, "token_count": 12, "tokens": "none"}',
        "tokenizer=identifier, key=value, monkey: banana, token: undefined",
        "a" * 5000,
    ],
)
def test_clean_texts_stay_as_they_are(text):
    assert Redactor()(text) == text


def test_a_secret_within_another_is_replaced_as_a_whole():
    redact = Redactor(values=["abcd1234", "abcd1234-and-more"])
    assert redact("x abcd1234-and-more x") == f"x {MASK} x"


def test_values_too_short_to_tell_are_left_in_place():
    assert Redactor(values=["a"])("a banana") == "a banana"


def test_json_is_redacted_in_keys_and_values_and_keeps_its_other_types():
    redact = Redactor(values=["hidden-value"])
    value: Json = {"hidden-value": [1, 2.5, None, True, "x hidden-value"]}
    assert redact_json(value, redact) == {MASK: [1, 2.5, None, True, f"x {MASK}"]}


def test_the_redactor_of_a_configuration_knows_every_variable_it_names():
    api = http_api(
        "http://127.0.0.1:1/",
        auth={"type": "basic", "username": "me", "password_env": "PASS"},
        request={"headers": {"X-Team": "a ${TEAM_KEY}"}},
    )
    secrets = Secrets({"PASS": "the-password", "TEAM_KEY": "the-team-key"})
    redact = Redactor.from_configuration(loaded(api=api).configuration, secrets)
    pair = base64.b64encode(b"me:the-password").decode()
    assert redact(f"the-password the-team-key {pair}") == f"{MASK} {MASK} {MASK}"


def test_every_variable_that_is_not_set_is_told_at_once():
    api = http_api(
        "http://127.0.0.1:1/",
        auth={"type": "bearer", "token_env": "ONE"},
        request={"headers": {"X-Team": "${TWO}", "X-Other": "${THREE}"}},
    )
    configuration = loaded(api=api).configuration
    with pytest.raises(ConfigurationError) as caught:
        check_environment(configuration, Secrets({"THREE": "here", "ONE": "  "}))
    assert [p.key for p in caught.value.problems] == [
        "api.request.headers.X-Team",
        "api.auth.token_env",
    ]
    check_environment(configuration, Secrets({"ONE": "1", "TWO": "2", "THREE": "3"}))


@pytest.mark.parametrize(
    "piece", ["a-", "a_", "token=", "Bearer ", "://a:", "sk-", "eyJ.", "gh", "key: "]
)
def test_long_texts_of_any_pieces_take_no_more_than_a_moment(piece):
    """A pattern that looks back over the whole text would take hours here."""
    Redactor()(piece * 100_000 + "token eyJ sk- earer :// PRIVATE KEY")
