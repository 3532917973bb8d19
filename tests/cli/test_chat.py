"""``convergence chat``: questions, marks and commands, line by line and by single keys."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from convergence.cli.chat_session import COMMANDS
from convergence.console import printable
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.support.chat_servers import chunk, events
from tests.support.configurations import chat_api, mapping
from tests.support.http_server import LoopbackServer, error_answer


@pytest.fixture
def type_lines(cli, here, monkeypatch):
    """Type lines into a chat offline, or with a provider of the test's."""

    def typed(*lines: str, api=None, roles=None, options=("--offline",)):
        temperature = {"type": "float", "min": 0, "max": 1, "default": 0.5}
        made = mapping(
            api=api or chat_api("https://api.example.com/v1"),
            search_space__parameters={"temperature": temperature},
            feedback={"roles": roles or {}},
            storage={"path": "./data"},
        )
        (here / "optimization.yaml").write_text(json.dumps(made))
        (here / "lines").write_text("".join(f"{line}\n" for line in lines))
        with (here / "lines").open() as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            return cli("chat", *(() if "--user" in options else ("--user", "ada")), *options)

    return typed


def history(here: Path):
    with FeedbackStore(here / "data") as store:
        return store.history("ada")


def test_thinking_is_shown_beside_the_answer(type_lines):
    pieces = [
        chunk(content="<think>Paris, or"),
        chunk(content=" Rome?</think>Paris."),
        chunk("stop"),
    ]
    with LoopbackServer(lambda _: events(pieces)) as server:
        done = type_lines("Capital?", "/history", api=chat_api(server.url), options=())
    assert done.code == 0, done.err
    assert "Paris.\nthinking, not part of the answer: Paris, or Rome?" in done.out
    assert "  thinking  Paris, or Rome?" in done.out


def test_each_answer_is_logged_and_the_next_line_may_rate_it(type_lines, here):
    done = type_lines("Where is Paris?", "4", "And Rome?", "", "And Oslo?", "And Bern?", "1")
    assert done.code == 0, done.err
    assert done.out.count("Rated") == 2
    assert "Rated 4 Excellent." in done.out
    assert "a mock answers instead of the model" in done.err
    found = history(here)
    assert [kept.asked[-1].content for kept, _ in found] == [
        "Where is Paris?", "And Rome?", "And Oslo?", "And Bern?",
    ]  # fmt: skip
    ratings = [None if mark is None else mark.rating for _, mark in found]
    assert ratings == [4, None, None, 1]
    assert {kept.model for kept, _ in found} == {"stand-in m"}


def test_commands_mark_and_take_back(type_lines, here):
    done = type_lines(
        "Hi?", "/rate 2 too long", "/thumbs up", "/undo", "/rate 5", "/history", "/undo", "/undo", "/undo",
    )  # fmt: skip
    assert done.code == 0, done.err
    said = done.out
    for words in (
        "Rated 2 Average.\nRated thumbs up.\nUndid the rating of the last answer.\n",
        "Rated 5 Outstanding.\n",
        "5 Outstanding  stand-in m\n  asked     Hi?\n",
        "answer from the conversation. They stay logged.\nNothing to undo.\n",
    ):
        assert words in said
    assert [mark for _, mark in history(here)] == [None]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/rate 6", "/rate needs a whole number from 1 to 5, but got '6'. Give one of 1 Poor"),
        ("/rate 3", "there is no answer to rate yet"),
        ("/thumbs sideways", "needs up or down, but got 'sideways'"),
        ("/role nobody", "known are assistant, code, creative"),
        ("/compare", "no question yet"),
        ("/undoo", "Did you mean /undo?"),
    ],
)
def test_a_line_that_cannot_be_answered_is_told_and_fails_a_pipe(type_lines, line, words):
    done = type_lines(line, "/help")
    assert done.code == 1
    assert words in " ".join(done.err.split())
    assert all(name in done.out for name in COMMANDS)


@pytest.mark.parametrize("name", ["ev\x1bil", "", " ada", "a" * 201])
def test_a_name_that_no_answer_could_be_logged_under_is_refused_before_the_first(
    type_lines, here, name
):
    done = type_lines("Hi?", "Again?", options=("--offline", "--user", name))
    assert (done.code, done.out) == (2, "")
    assert "`--user` must be a string of 1 to 200 printable characters" in " ".join(
        done.err.split()
    )
    assert not (here / "data").exists()


def test_a_provider_that_fails_is_told_without_its_key_and_the_chat_goes_on(
    type_lines, here, monkeypatch
):
    key = "sk-canary-0123456789abcdef"
    monkeypatch.setenv("CHAT_KEY", key)
    answers = [
        error_answer(401, f"bad key {key}"),
        events([chunk(content="Fine."), chunk("stop")]),
    ]
    with LoopbackServer(lambda _: answers.pop(0)) as server:
        api = {**chat_api(server.url), "auth": {"token_env": "CHAT_KEY"}}
        done = type_lines("Hi?", f"My key is {key}", "5", api=api, options=())
    assert server.requests[0].headers["authorization"] == f"Bearer {key}"
    assert done.code == 1
    assert "Fine.\nRated 5 Outstanding.\n" in done.out
    assert key not in done.out + done.err
    ((kept, _),) = history(here)
    assert kept.response == "Fine."
    for file in (here / "data").rglob("*"):
        assert not file.is_file() or key.encode() not in file.read_bytes()


def test_an_answer_cannot_rewrite_the_terminal(type_lines):
    text = "a\x1b[2Jb\u202ec\x07\n\u00e9\U0001f469\u200d\U0001f4bb"
    with LoopbackServer(lambda _: events([chunk(content=text), chunk("stop")])) as server:
        done = type_lines("Hi?", api=chat_api(server.url), options=())
    assert "a\\x1b[2Jb\\u202ec\\x07\n\u00e9\U0001f469\u200d\U0001f4bb\n" in done.out
    assert printable("\ud800") == "\\ud800"


def test_one_key_rates_in_a_terminal_and_another_begins_the_next_line(type_lines, here):
    assert type_lines().code == 0  # writes the configuration
    main, side = pty.openpty()
    command = [sys.executable, "-m", "convergence", "chat", "--offline", "--user", "ada"]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(
        command, stdin=side, stdout=side, stderr=side, cwd=here, env=environment
    )
    os.close(side)
    seen = ""

    def until(pattern: str) -> None:
        """Read what the terminal shows, until a pattern is there."""
        nonlocal seen
        while re.search(pattern, seen) is None:
            seen += os.read(main, 4096).decode("utf-8", "replace")
        seen = seen[re.search(pattern, seen).end() :]  # type: ignore[union-attr]

    try:
        until("assistant> ")
        os.write(main, b"Where is Paris?\n")
        until("Enter skips] ")
        os.write(main, b"5")
        until("Rated 5 Outstanding")
        until("assistant> ")
        os.write(main, b"And Rome?\n")
        until("Enter skips] ")
        os.write(main, b"A")  # no rating: the next question begins
        until("assistant> ")
        os.write(main, b"nd Oslo?\n")
        until("Enter skips] ")
        os.write(main, b"\n")
        until("assistant> ")
        os.write(main, b"\x04")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(main)
    found = [(kept.asked[-1].content, mark) for kept, mark in history(here)]
    assert [asked for asked, _ in found] == ["Where is Paris?", "And Rome?", "And Oslo?"]
    assert [rating is not None for _, rating in found] == [True, False, False]
