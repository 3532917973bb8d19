"""Feedback stores with both backends, which fulfil the same contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.store.feedback.feedback_store import FeedbackStore
from tests.store.postgres_server import postgres_server


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str | None:
    """Return the address of the store's database; ``None`` means a file."""
    return None if request.param == "sqlite" else postgres_server().new_schema()


@pytest.fixture
def store(tmp_path: Path, url: str | None) -> Iterator[FeedbackStore]:
    with FeedbackStore(tmp_path / "store", url=url, now_us=lambda: 7_000) as opened:
        yield opened
