"""A runtime state of its own for each test."""

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
    """Read texts by n-grams, also where embeddings are installed: these would come in their time."""
    monkeypatch.setattr(bandit, "text_embedder", lambda **_: None)
