"""Tokens: only those that are set, strong and known open the door."""

import secrets

import pytest

from convergence.service.tokens import read_tokens, weakness_of
from convergence.ui.sessions import BrowserSessions
from convergence_core.errors import ConfigurationError
from tasks.store.feedback.feedback_store import FeedbackStore

STRONG = secrets.token_urlsafe(32)
OTHER = secrets.token_urlsafe(32)


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        ("short", "fewer than 32 characters"),
        ("a" * 40, "different characters"),
        ("0123456789" * 4, "repeats itself"),
        ("correct horse battery staple, they say", "header cannot carry"),
        ("Zürich-öffnet-die-Türen-für-jedermann", "header cannot carry"),
    ],
)
def test_weak_tokens_are_refused_and_never_repeated(secret: str, why: str):
    assert why in str(weakness_of(secret))
    with pytest.raises(ConfigurationError, match=why) as refused:
        read_tokens(["MINE"], {"MINE": secret})
    assert secret not in str(refused.value)


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ([], "must name an environment variable"),
        (["UNSET"], "variable that is set"),
        (["MINE=select,everything"], "everything"),
        (["MINE", "TWIN"], "are the same"),
    ],
)
def test_tokens_without_sense_are_refused(specs: list[str], words: str):
    with pytest.raises(ConfigurationError, match=words):
        read_tokens(specs, {"MINE": STRONG, "TWIN": STRONG})


def test_a_token_may_do_what_its_scopes_say():
    tokens = read_tokens(["APP=select,update", "BOSS"], {"APP": STRONG, "BOSS": OTHER})
    app = tokens.of(f"Bearer {STRONG}".encode())
    boss = tokens.of(f"bearer {OTHER}".encode())
    assert app is not None
    assert boss is not None
    assert (app.may("select"), app.may("update"), app.may("admin")) == (True, True, False)
    assert boss.may("admin")
    assert boss.may("select")


def test_tokens_login_links_and_cookies_are_kept_out_of_stored_texts(tmp_path):
    read_tokens(["MINE"], {"MINE": STRONG})
    sessions = BrowserSessions()
    link = sessions.one_time_token()
    cookie = sessions.exchange(link)
    assert cookie is not None
    session = sessions.of(cookie)
    assert session is not None
    with FeedbackStore(tmp_path) as feedback:
        for secret in (STRONG, link, cookie, session.csrf):
            text = f"my token is {secret}: http://127.0.0.1:1/ui/?token={secret}"
            assert secret not in feedback.clean(text)
            assert secret[:16] not in feedback.clean(text)
