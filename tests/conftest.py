"""Settings of the whole suite, and one Prefect server for the tests that need it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

os.environ["DO_NOT_TRACK"] = "1"
# As in the commands: threads waiting for a busy core cost more than small matrices gain.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
os.environ.setdefault("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")

# A shell's background processes ignore Ctrl-C, and `nohup` ignores a hang-up. The tests' children would inherit
# this, but tests interrupt them.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The same examples everywhere and every time, so that failures are reproducible. Examples have no
# deadline and no database that workers would share.
settings.register_profile("suite", derandomize=True, deadline=None, database=None)
settings.load_profile("suite")


_SHARED_FOLDER = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder that the session's workers share, and let each start collecting elsewhere.

    Pytest compiles a test file's assertions once and caches the result. Workers that all start with
    the first file would each compile every file.
    """
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workerinput is None:
        config.stash[_SHARED_FOLDER] = Path(tempfile.mkdtemp(prefix="convergence-tests-"))
    elif config.args == config.getini("testpaths"):
        folders = sorted(str(path) for path in Path(__file__).parent.iterdir() if path.is_dir())
        number = int(workerinput["workerid"].removeprefix("gw"))
        first = len(folders) * number // int(workerinput["workercount"])
        config.args = [*folders[first:], *folders[:first]]
        if (
            number == 0
        ):  # the server starts meanwhile, because the longest tests, which come first, need it
            from tests.support.prefect_server import join_server

            threading.Thread(target=join_server, args=(_shared_folder(config),)).start()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the folder to a worker."""
    node.workerinput["shared_folder"] = str(_shared_folder(node.config))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server once all workers have finished."""
    if _SHARED_FOLDER in config.stash:
        folder = config.stash[_SHARED_FOLDER]
        if (folder / "server.json").exists():
            from tests.support.prefect_server import end_server

            end_server(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _shared_folder(config: pytest.Config) -> Path:
    workerinput: dict[str, str] | None = getattr(config, "workerinput", None)
    return (
        config.stash[_SHARED_FOLDER] if workerinput is None else Path(workerinput["shared_folder"])
    )


@pytest.hookimpl(trylast=True)  # only of selected tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the files of whole runs, which are the longest, so that no worker ends with one."""
    longest = {item.path for item in items if item.get_closest_marker("timeout") is not None}
    long = {item.path for item in items if item.get_closest_marker("prefect") is not None}
    items.sort(key=lambda item: (item.path not in longest, item.path not in long, item.path))


def pytest_collection_finish() -> None:
    """Build the tree of commands once for all tests."""
    if "typer.main" in sys.modules:
        typer = sys.modules["typer.main"]
        typer.get_command = cache(typer.get_command)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _server_for_prefect_tests(request: pytest.FixtureRequest) -> None:
    """Start the server for tests marked ``prefect``, and for no others."""
    if request.node.get_closest_marker("prefect") is not None:
        request.getfixturevalue("prefect_server")


@pytest.fixture(scope="session")
def prefect_server(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[str]:
    """Run a real Prefect server on loopback for the session; return its API's address.

    It is a separate process that flows of this process and of children can reach. The workers of
    one session share it, each with its own home.
    """
    from tests.support.prefect_server import join_server

    home = tmp_path_factory.mktemp("prefect")
    api_url = join_server(_shared_folder(request.config))
    environment = {"PREFECT_API_URL": api_url, "PREFECT_HOME": str(home)}
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

        with temporary_settings({PREFECT_API_URL: api_url, PREFECT_HOME: home}):
            yield api_url
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate disk of 3 MB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a tmpfs takes root")
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
