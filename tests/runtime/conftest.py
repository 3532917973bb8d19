"""A runtime state of its own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.store.runtime.runtime_store import RuntimeStore


@pytest.fixture
def state(tmp_path: Path) -> Iterator[RuntimeStore]:
    with RuntimeStore(tmp_path / "s") as opened:
        yield opened
