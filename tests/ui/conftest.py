"""A store written by a short real run, and a loopback server of its pages."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from convergence.ui.server import UiServer
from tasks.pages.source import PageSource
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.optimizations import write_project
from tests.support.page_viewer import Viewer, store_of, tokens
from tests.support.searching import search

Open = Callable[[Path], Viewer]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read-only folder of a project with a finished run."""
    folder = tmp_path_factory.mktemp("ui")
    search(write_project(folder))
    return folder


@pytest.fixture
def project(written: Path, tmp_path: Path) -> Path:
    """Writable copy of that folder."""
    shutil.copytree(written, tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture
def opened() -> Iterator[Open]:
    """Serve a store with tokens until the test ends."""
    ended: list[Callable[[], object]] = []

    def serve(store: Path) -> Viewer:
        source = PageSource(ParquetStore(store))
        server = UiServer(source, tokens(), port=0).__enter__()
        ended.extend([source.close, server.__exit__])
        made = Viewer(server)
        ended.append(made.close)
        return made

    yield serve
    for end in reversed(ended):
        end()


@pytest.fixture(scope="session")
def viewer(written: Path) -> Iterator[Viewer]:
    """Browser with a session that views the finished run."""
    source = PageSource(ParquetStore(store_of(written)))
    with UiServer(source, tokens(), port=0) as server:
        made = Viewer(server).enter()
        yield made
        made.close()
    source.close()
