"""Notices reach a real server, in the form it takes, and no error shows its address."""

import pytest

from convergence_core.errors import ConfigurationError, NotificationError
from tasks.notify.notifier import send
from tasks.secrets.process_redaction import redacted_text
from tests.support.http_server import Answer, LoopbackServer

NOTICE = {"event": "convergence.drift", "system": "bot", "text": "Drift: arm a went down."}
PATH = "/hooks/T0KEN-9f2c77ab"
NAME = "ALERTS_URL_OF_A_TEST"


def test_a_webhook_gets_event_system_and_text_and_slack_the_text(monkeypatch: pytest.MonkeyPatch):
    with LoopbackServer(lambda _: Answer({"ok": True})) as server:
        monkeypatch.setenv(NAME, server.url + PATH)
        send(NOTICE, NAME, "webhook")
        send(NOTICE, NAME, "slack")
    first, second = server.requests
    assert (first.method, first.path) == ("POST", PATH)
    assert first.body == NOTICE
    assert second.body == {"text": NOTICE["text"]}
    assert PATH not in redacted_text(f"told {server.url}{PATH}")


@pytest.mark.parametrize(
    ("status", "may_pass"), [(500, True), (503, True), (429, True), (404, False), (302, False)]
)
def test_only_what_may_pass_is_sent_again(
    status: int, may_pass: bool, monkeypatch: pytest.MonkeyPatch
):
    with LoopbackServer(lambda _: Answer({}, status)) as server:
        monkeypatch.setenv(NAME, server.url + PATH)
        with pytest.raises(NotificationError, match=f"{NAME}: .* {status}") as caught:
            send(NOTICE, NAME, "webhook")
    assert caught.value.may_pass == may_pass
    assert PATH not in str(caught.value)


def test_an_address_where_nobody_listens_may_be_there_later(monkeypatch: pytest.MonkeyPatch):
    with LoopbackServer(lambda _: Answer({})) as server:
        url = server.url
    monkeypatch.setenv(NAME, url + PATH)
    with pytest.raises(NotificationError, match="cannot be reached") as caught:
        send(NOTICE, NAME, "slack")
    assert caught.value.may_pass
    assert url not in str(caught.value)


@pytest.mark.parametrize("value", ["", "ftp://example.com/T0KEN", "T0KEN-only", "http://[T0KEN"])
def test_what_is_no_address_is_refused_without_being_shown(
    value: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(NAME, value)
    with pytest.raises((ConfigurationError, NotificationError), match=NAME) as caught:
        send(NOTICE, NAME, "webhook")
    assert "T0KEN" not in str(caught.value)
