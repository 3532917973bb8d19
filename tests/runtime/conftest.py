"""A separate runtime state for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.serving import bandit
from tasks.store.runtime.runtime_store import RuntimeStore


@pytest.fixture
def state(tmp_path: Path) -> Iterator[RuntimeStore]:
    with RuntimeStore(tmp_path / "s") as opened:
        yield opened


@pytest.fixture(autouse=True)
def hashed_ngrams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Embed texts by n-grams even if embeddings are installed, which would load at unpredictable times."""
    monkeypatch.setattr(bandit, "text_embedder", lambda **_: None)
