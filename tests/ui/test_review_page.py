"""The page on review: what is proposed, approved and rejected, as the command does it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from convergence.ui.server import UiServer
from convergence_core.feedback.records import Rating
from tasks.inputs.loader import load
from tasks.pages.overview import overview
from tasks.pages.source import PageSource
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.tables.parquet_store import ParquetStore
from tests.feedback.answers import answer
from tests.support.optimizations import write_project
from tests.support.page_viewer import READER, Viewer, sections, store_of, tokens


def write(folder: Path, **cases: object) -> Path:
    inline = [{"id": f"c{n}", "input": {"n": str(n)}} for n in range(4)]
    return write_project(folder, evaluation__test_cases={"inline": inline, **cases})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    with FeedbackStore(tmp_path / "convergence-data") as store:
        for number, stars in enumerate((1, 2, 4), 1):
            store.log(answer(f"i{number}", prompt=f"<b>question {number}</b>"))
            store.rate(
                Rating(interaction_id=f"i{number}", user_id="ann", rating=stars, reason="wrong")
            )
        store.log(answer("other", system="another"))
        store.rate(Rating(interaction_id="other", user_id="ann", rating=1))
    return write(tmp_path, approved="approved.jsonl")


@pytest.fixture
def viewer(config: Path) -> Iterator[Viewer]:
    source = PageSource(ParquetStore(config.parent / "convergence-data"), config)
    with UiServer(source, tokens(), port=0) as server:
        made = Viewer(server).enter()
        yield made
        made.close()
    source.close()


def test_what_is_proposed_is_shown_until_somebody_decides(viewer: Viewer, config: Path):
    page = viewer.page("review")
    assert (page["why_not"], page["system"], page["fields"]) == (None, "known", [])
    assert page["n_proposed"] == 2
    first, second = page["proposed"]
    assert (first["prompt"], first["answer"]) == ("<b>question 1</b>", "It is i1.")
    assert (first["marks"], second["interaction_id"]) == ("1 Poor: wrong", "i2")
    done = viewer.post("review/approve", interaction_id="i1", confirm="i1", expected="four")
    assert done.status_code == 200, done.text
    assert done.json()["sentence"].startswith("feedback-i1 is in ")
    done = viewer.post("review/reject", interaction_id="i2", confirm="i2")
    assert done.json() == {"sentence": "feedback-i2 is not proposed again."}
    page = viewer.page("review")
    assert page["proposed"] == []
    assert {(one["interaction_id"], one["decision"], one["case_id"]) for one in page["decided"]} == {
        ("i1", "approved", "feedback-i1"), ("i2", "rejected", None),
    }  # fmt: skip
    (added,) = (one for one in load(config).cases if one.case_id == "feedback-i1")
    assert (added.input, added.expected) == ({"n": "<b>question 1</b>"}, "four")
    (line,) = (config.parent / "approved.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["description"] == "1 Poor: wrong"


def test_nothing_is_decided_without_token_repetition_or_proposal(viewer: Viewer, config: Path):
    named = {"interaction_id": "i1", "confirm": "i1"}
    assert viewer.post("review/approve", token=None, **named).status_code == 401
    assert viewer.post("review/approve", token=READER, **named).status_code == 403
    assert viewer.post("review/reject", interaction_id="i1", confirm="i2").status_code == 400
    refused = viewer.post("review/reject", interaction_id="i3", confirm="i3")
    assert refused.status_code == 404
    assert "an answer that is proposed must be named" in refused.json()["detail"]
    assert viewer.page("review")["n_proposed"] == 2
    assert not (config.parent / "approved.jsonl").exists()


def test_the_overview_counts_what_waits_for_a_decision(project: Path):
    store = store_of(project)
    source = PageSource(ParquetStore(store))

    def needs() -> str | None:
        return sections(overview(source)).get("Needs your attention")

    with FeedbackStore(store) as feedback:
        for name, stars in (("bad", 1), ("worse", 2), ("good", 5)):
            feedback.log(answer(name))
            feedback.rate(Rating(interaction_id=name, user_id="ann", rating=stars))
        feedback.log(answer("other", system="another"))
        feedback.rate(Rating(interaction_id="other", user_id="ann", rating=1))
        assert needs() == "2 badly rated answers may become test cases. convergence review"
        feedback.rate(Rating(interaction_id="worse", user_id="ann", rating=4))
        assert needs() == "1 badly rated answer may become a test case. convergence review"
        feedback.unrate("bad", "ann")
        assert needs() is None
    source.close()
