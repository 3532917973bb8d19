"""Settings of the whole suite, and one Prefect server for the tests that need it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["DO_NOT_TRACK"] = "1"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
os.environ.setdefault("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _server_for_prefect_tests(request: pytest.FixtureRequest) -> None:
    """Start the server for tests marked ``prefect``, and for no others."""
    if request.node.get_closest_marker("prefect") is not None:
        request.getfixturevalue("prefect_server")


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a real Prefect server on loopback for the session; return its API's address.

    It is a process of its own that flows of this process and of children reach alike.
    """
    from tests.support.prefect_server import PrefectServer

    home = tmp_path_factory.mktemp("prefect")
    with PrefectServer(home) as server:
        before = {name: os.environ.get(name) for name in server.environment}
        os.environ.update(server.environment)
        try:
            from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

            with temporary_settings({PREFECT_API_URL: server.api_url, PREFECT_HOME: home}):
                yield server.api_url
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
