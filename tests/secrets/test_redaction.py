"""No secret in any text, and clean texts left as they are."""

import base64
import json
import random
import string
import urllib.parse

import pytest
from hypothesis import given, strategies as st

from convergence_core.errors import CandidateFault
from convergence_core.records import Json, Reply
from tasks.calls.outcomes import fault_outcome, redacted, reply_of, reply_outcome
from tasks.calls.scorer import error_text
from tasks.secrets.redaction import MASK, Redactor, Secrets, one_line, redact_json, shortened
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


@pytest.mark.parametrize("value", ["EMPTY", "none", "Test", "local", "sk-no-key-required"])
def test_placeholders_for_keys_of_local_servers_are_words(value):
    redact = Redactor(["K"], secrets=Secrets({"K": value}))
    assert redact(f"an answer of {value} words") == f"an answer of {value} words"


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


@pytest.mark.parametrize(
    "piece", ["a-", "a_", "token=", "Bearer ", "://a:", "sk-", "eyJ.", "gh", "key: "]
)
def test_long_texts_of_any_pieces_take_no_more_than_a_moment(piece):
    """A pattern that looks back over the whole text would take hours here."""
    Redactor()(piece * 100_000 + "token eyJ sk- earer :// PRIVATE KEY")


# -- pieces, and texts that are cut

TOKEN = "tk-Q7vN2xLpW9rZ4cKmH8sB5dTyG1fJ"  # noqa: S105 - nobody's
LEAST = 8


@pytest.fixture(scope="module")
def redact():
    return Redactor(values=[TOKEN])


def longest_piece(text: str, secret: str = TOKEN) -> int:
    """Return the length of the longest run of the secret's characters in a text."""
    text, secret = text.lower(), secret.lower()
    return max(
        (n for n in range(len(secret) + 1) if any(
            secret[i : i + n] in text for i in range(len(secret) - n + 1))),
    )  # fmt: skip


@pytest.mark.parametrize("change", [str, str.upper, str.lower, str.swapcase])
@pytest.mark.parametrize("beside", ["", "~", " ", "_|~ ;" * 60])
def test_every_piece_of_eight_characters_is_replaced(redact, change, beside):
    for n in range(LEAST, len(TOKEN) + 1, 3):
        for i in range(len(TOKEN) - n + 1):
            shown = redact(f"{beside}{change(TOKEN[i : i + n])}{beside}")
            assert longest_piece(shown) < LEAST, shown
            assert shown == f"{beside}{MASK}{beside}"


@pytest.mark.parametrize("before", ["", "a", "ab", "user:"])
@pytest.mark.parametrize("n", [LEAST, 12, 20, len(TOKEN)])
def test_encoded_pieces_are_replaced(redact, before, n):
    for i in range(len(TOKEN) - n + 1):
        piece = TOKEN[i : i + n].encode()
        padded = before.encode() + piece
        for encoded in (
            base64.b64encode(padded).decode(),
            base64.urlsafe_b64encode(padded).decode(),
            padded.hex(),
            padded.hex().upper(),
            "".join(f"%{byte:02X}" for byte in padded),
            urllib.parse.quote(padded + b"&"),
        ):
            assert MASK in redact(f"got {encoded} there"), (piece, encoded)


def escaped(form: str, text: str) -> str:
    """Return a text of which each character that is no letter or digit is escaped."""
    return "".join(c if c.isalnum() else form.format(ord(c), c) for c in text)


@pytest.mark.parametrize(
    "form",
    ["\\u{0:04x}", "\\u{0:04X}", "\\\\u{0:04x}", "\\x{0:02x}", "&#{0};", "&#x{0:X};", "&amp;#{0:03};",
     "%{0:02X}", "%25{0:02x}", "%2525{0:02X}", "\\{1}", "\\\\{1}"],
)  # fmt: skip
@pytest.mark.parametrize("secret", ["N/M9dyanD+w6zyBe", "k(3&8<a>Z'4\\9\"b%7=x;1#5", "a+b/a=b"])
def test_a_secret_is_found_however_its_signs_are_escaped(secret, form):
    redact = Redactor(values=[secret])
    for beside in ("", "~", "_|~ ;" * 60):
        assert redact(f"{beside}{escaped(form, secret)}{beside}") == f"{beside}{MASK}{beside}"


@pytest.mark.parametrize("piece", ["\\", "&amp;", "%25", "%252b", "\\u002b", "&#43;", "\\/"])
def test_long_texts_of_escapes_take_no_more_than_a_moment(piece):
    Redactor(values=["N/M9dyanD+w6zyBe&"])(piece * 100_000 + "%")


@pytest.mark.parametrize(
    "text", ["a%2Bb &amp; c &#43; \\u002B \\/", '{"a": "b\\\\n"}', "100 %25", "&#x2b", "\\" * 40]
)
def test_escapes_that_hide_no_secret_stay(redact, text):
    assert redact(text) == text


def test_a_long_text_is_searched_as_a_short_one(redact):
    rng = random.Random(3)
    other = "".join(rng.choice(string.ascii_letters + "é日 \n") for _ in range(70_000))
    for i in range(len(TOKEN) - LEAST + 1):
        at = rng.randrange(len(other))
        piece = TOKEN[i : i + LEAST]
        text = f"{other[:at]}~{piece}~{other[at:]}"
        assert redact(text) == f"{other[:at]}~{MASK}~{other[at:]}"
    assert redact(other) == other


@pytest.mark.parametrize(
    "limit", [60, 300, *(pytest.param(n, marks=pytest.mark.slow) for n in (2000, 4000))]
)
def test_no_cut_at_any_place_leaves_a_piece(redact, limit):
    for offset in range(-40, 41):
        for center in (limit // 3, limit, 6000 - 2 * limit // 3):
            body = ("z" * max(0, center + offset) + TOKEN).ljust(6000, "y")
            for text in (shortened(body, limit, redact), one_line(body, limit, redact)):
                assert len(text) <= limit
                assert longest_piece(text) < LEAST


@given(st.text(min_size=0, max_size=500), st.integers(60, 300))
def test_shortened_texts_keep_to_their_limit(text, limit):
    cut = shortened(text, limit, str)
    assert len(cut) <= limit
    assert cut == text or len(text) > limit


@pytest.mark.parametrize(
    "text",
    [
        "your password is wrong",
        "see postgresql at localhost:5432/convergence",
        "--------- | --------- 00000000 aaaaaaaaaaaa",
        "ÄÖÜ日本語テキスト and İstanbul",
    ],
)
def test_words_that_short_secrets_and_urls_hold_are_left_in_other_texts(text):
    url = "postgresql://convergence:hunter2hunter2@localhost:5432/convergence_journal"
    values = ["password123", url, "hunter2hunter2", "-" * 40, "0" * 20 + "xyz"]
    assert Redactor(values=values)(text) == text
    assert "hunter2h" not in Redactor(values=values)("pass hunter2hun pass")


def test_every_text_of_a_reply_is_redacted(redact):
    reply = Reply(
        value={TOKEN: TOKEN}, latency_ms=1.0, model=TOKEN, provider="p", finish_reason=TOKEN,
        dropped=(f"x: {TOKEN}",), extra={"a": 1.0}, recording_url=f"https://x/{TOKEN}",
        thinking=TOKEN,
    )  # fmt: skip
    clean = redacted(reply, redact)
    assert TOKEN not in json.dumps(reply_outcome(clean))
    assert reply_of(reply_outcome(clean)) == clean


@pytest.mark.parametrize("length", [1900, 1990, 2000, 3990, 4000, 6000])
def test_a_fault_is_stored_without_a_piece_of_a_secret(redact, length):
    text = f"{'x' * (length - 20)}{TOKEN}{'y' * 6000}"
    fault = CandidateFault(text, error_type=TOKEN, details=text)
    stored = json.dumps(fault_outcome(fault, redact, keep_text=True))
    assert longest_piece(stored) < LEAST
    assert longest_piece(error_text(text, text + "!", redact)) < LEAST


@pytest.mark.parametrize(
    "value", ["abcdefghijklmnop123456789", "klmnop123456", "sk-proj-abcdefghijklm", "7890"]
)
@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("my sk-proj-abcdefghijklmnop1234567890 key", f"my {MASK} key"),
        ("Authorization: Bearer abcdefghijklmnop1234567890", f"Authorization: Bearer {MASK}"),
        ("api_key=abcdefghijklmnop1234567890&n=2", f"api_key={MASK}&n=2"),
    ],
)
def test_a_known_value_within_somebodys_key_leaves_nothing_of_the_key(value, text, clean):
    assert Redactor(values=[value])(text) == Redactor()(text) == clean
