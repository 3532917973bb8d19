"""The page on adapters is walked through; its tables are the code's."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from convergence_core.config.feedback import LiveTestConfig
from convergence_core.feedback.activation_gate import (
    CONDITIONS,
    LEAST_HELD_OUT,
    LEAST_REPAIRS_KEPT,
    LEAST_WELL_FORMED,
    MOST_KL_NATS,
)
from convergence_core.feedback.adapter_records import STATUSES
from convergence_core.feedback.live_test_records import LiveStatus, LiveTest
from convergence_core.feedback.records import Rating
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.docs.test_documents import ROOT, blocks, in_shell
from tests.feedback.adapters import activated, rated, saved_adapter

PAGE = (ROOT / "docs/adapters.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose store has two adapters, the second one active."""
    at_us = 1_767_323_045_000_000
    with FeedbackStore(tmp_path / "convergence-data", now_us=lambda: at_us) as store:
        adapters = AdapterStore(store)
        first = (rated(store, "a"), rated(store, "b"))
        one = activated(adapters, saved_adapter(tmp_path / "1", 1), *first)
        activated(adapters, saved_adapter(tmp_path / "2", 2), rated(store, "c"), parent=one)
    return tmp_path


def walked(number: int, folder: Path) -> str:
    return in_shell(f"export COLUMNS=200; exec 2>&1\n{blocks(PAGE, 'sh')[number]}", folder)


def test_the_list_and_an_adapter_are_shown(folder: Path):
    printed = walked(0, folder)
    lines = blocks(PAGE, "text")[0].splitlines()
    heading, _, first = (re.sub(r"\s+", " ", line).strip() for line in lines)
    shown = [re.sub(r"\s+", " ", line).strip() for line in printed.splitlines()]
    assert heading in shown
    assert first in shown
    assert any(line.startswith("assistant-0002 assistant active 1 qrpo") for line in shown)
    assert "assistant-0002 is active since 2026-01-02 03:04 UTC: passed every check" in printed
    assert "files: as registered, SHA-256 " in printed
    assert "KL is small." in printed
    start = printed.index("{")
    listed, _ = json.JSONDecoder().raw_decode(printed[start:])
    assert [one["status"] for one in listed["adapters"]] == ["inactive", "active"]


@pytest.mark.slow
def test_one_is_taken_back_and_activated_again(folder: Path):
    printed = walked(1, folder)
    assert "assistant-0001 answers for the role assistant again." in printed
    assert "assistant-0002 answers for the role assistant." in printed


@pytest.mark.slow
def test_a_changed_rating_shows_within_one_fold(folder: Path):
    with FeedbackStore(folder / "convergence-data") as store:
        store.rate(Rating(interaction_id="c", user_id="ann", rating=1))
    printed = walked(2, folder)
    assert "adapter_events" in printed
    assert re.search(r"assistant-0001\s+active\s+assistant-0002 became stale", printed)
    assert re.search(r"assistant-0002\s+stale\s+a rating it learned from was edited", printed)


def test_statuses_and_checks_are_those_of_the_code():
    for status, meaning in STATUSES.items():
        assert f"| {status} | {meaning}" in PAGE
    for name, condition in CONDITIONS.items():
        assert f"| {name} | {condition} |" in PAGE
    for words in (
        f"at least {LEAST_HELD_OUT} prompts", f"at most {MOST_KL_NATS:g} nats",
        f"at least {LEAST_WELL_FORMED:g} of",
        f"at least {LEAST_REPAIRS_KEPT:g} of",
    ):  # fmt: skip
        assert words in PAGE


def test_the_test_on_live_traffic_has_its_defaults_and_says_its_sentence():
    text = blocks(PAGE, "yaml")[0]
    given = yaml.safe_load(text)["feedback"]["training"]["live_test"]
    assert LiveTestConfig(**given) == LiveTestConfig()
    for status in get_args(LiveStatus):
        assert status == "running" or f"| {status} |" in PAGE
    told = LiveTest(
        test_id="t", version="assistant-0002", control="assistant-0001", role="assistant", share=0.5,
        max_ratings=200, status="better", difference=1.5, low=0.09, high=1.98, n_ratings=17,
        n_conversations=17,
    )  # fmt: skip
    assert told.words in blocks(PAGE, "text")[1].splitlines()
