"""The page of the chat: conversations of the store, and a served chat in Chromium."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from convergence_core.feedback.records import AnswerComparison, ChatMessage, Interaction, Rating
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.feedback.answers import answer
from tests.support.served_chat import READER, TALKER, served_chat
from tests.ui.conftest import Open
from tests.ui.test_browser import pytestmark as needs_browser, run_node


def turn(name: str, question: str, *before: str, **more: Any) -> Interaction:
    texts = zip(itertools.cycle(("user", "assistant")), (*before, question), strict=False)
    messages = [ChatMessage(role=role, content=text) for role, text in texts]
    system = ChatMessage(role="system", content="You are brief.")
    return answer(name, messages=(system, *messages), conversation_id="c1", **more)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with FeedbackStore(tmp_path) as feedback:
        feedback.log(turn("a", "One?", adapter_version="assistant-0001"))
        feedback.log(turn("b", "One?", adapter_version="assistant-0001"))
        feedback.log(turn("c", "Two?", "One?", "It is b."))
        feedback.log(answer("d", user_id="ben", conversation_id="c2"))
        feedback.log(answer("e"))
        feedback.rate(Rating(interaction_id="a", user_id="ann", rating=2, reason="too long"))
        feedback.rate(Rating(interaction_id="c", user_id="ann", thumbs="up"))
        feedback.compare(AnswerComparison(chosen_id="b", rejected_id="a", user_id="ann"))
    return tmp_path


def test_a_conversation_shows_answers_marks_and_choices(store: Path, opened: Open):
    viewer = opened(store).enter()
    page = viewer.page("conversation", id="c1", user="ann")
    shown = [
        (one["question"], one["n_before"], one["answer"], one["is_better"])
        for one in page["answers"]
    ]
    assert shown == [
        ("One?", 0, "It is a.", False), ("One?", 0, "It is b.", True), ("Two?", 1, "It is c.", False),
    ]  # fmt: skip
    first, second, third = page["answers"]
    assert first["mark"] == {
        "rating": 2,
        "thumbs": None,
        "label": "2 Average",
        "reason": "too long",
    }
    assert first["adapter_version"] == "assistant-0001"
    # Nobody shall know whose answer it is before it is rated.
    assert (second["mark"], second["adapter_version"]) == (None, None)
    assert third["mark"]["label"] == "thumbs up"
    assert viewer.get("conversation", id="c1", user="ben").status_code == 404
    assert viewer.get("conversation", id="c1").status_code == 422


@pytest.mark.slow
@needs_browser
def test_the_page_talks_to_a_served_chat(tmp_path: Path):
    with served_chat(tmp_path / "store") as served:
        run_node(
            "chat.test.mjs", timeout=200, ADDRESS=served.address(), TALKER=TALKER, READER=READER
        )
        logged = [answer for answer, _ in served.feedback.history("ada")]
        assert {one.role for one in logged} == {"pirate"}
        assert [one.asked[-1].content[-3:] for one in logged] == ["one", "one", "two"]
        assert logged[2].asked[1].content == logged[1].response
        (mark,) = served.feedback.ratings(logged[0].interaction_id)
        assert (mark.thumbs, mark.source) == ("down", "web")
        (choice,) = served.feedback.fetch("SELECT chosen_id, first_id, source FROM comparisons")
        assert choice == (logged[1].interaction_id, logged[0].interaction_id, "web")
