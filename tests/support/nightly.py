"""Server and worker of ``convergence up`` for tests, and user actions on them."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import httpx

from deployments.nightly import services
from tests.support.prefect_server import free_port

T = TypeVar("T")
WAIT_S = 600.0
"""Safety limit that only hanging tests reach."""


def eventually(look: Callable[[], T], why: str, within_s: float = WAIT_S) -> T:
    """Poll ``look`` and return its first true result."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, why
        time.sleep(0.2)
    return found


class Night:
    """``convergence up`` with a separate Prefect home, and ``down`` at the end."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        self.port = free_port()
        self.environment = {
            "PREFECT_HOME": str(home), "PREFECT_WORKER_QUERY_SECONDS": "1", **environment
        }  # fmt: skip

    @property
    def api_url(self) -> str:
        """Address of the server's API."""
        return f"http://127.0.0.1:{self.port}/api"

    def command(self, script: str, *, cwd: Path, code: int = 0) -> str:
        """Run a block as in a terminal; return its output."""
        inherited = {name: v for name, v in os.environ.items() if name != "PREFECT_API_URL"}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=cwd,
            env={
                **inherited,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                **self.environment,
            },
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == code, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def prefect(self, arguments: str, *, cwd: Path) -> str:
        """Run a command of Prefect against this server."""
        return self.command(
            f"PREFECT_API_URL={self.api_url} prefect --no-prompt {arguments}", cwd=cwd
        )

    def up(self, cwd: Path) -> services.Services:
        """Start server and worker."""
        self.command(f"convergence up --port {self.port}", cwd=cwd)
        found = services.running(self.home)
        assert found is not None
        return found

    def down(self) -> None:
        """End both."""
        services.down(self.home)

    def flow_runs(self) -> list[dict[str, Any]]:
        """Return every started flow run, oldest first; empty if the server is away."""
        with contextlib.suppress(httpx.TransportError):
            found: list[dict[str, Any]] = httpx.post(
                f"{self.api_url}/flow_runs/filter", json={"sort": "START_TIME_ASC"}, timeout=30
            ).json()
            return [run for run in found if run["state_type"] != "SCHEDULED"]
        return []

    def is_busy(self) -> bool:
        """Whether a flow run is under way, or the server is away."""
        states = {run["state_name"] for run in self.flow_runs()}
        return not states or bool(states & {"Running", "Pending", "Cancelling"})

    def of_deployments(self) -> list[dict[str, Any]]:
        """Return the flow runs of deployments, oldest first."""
        return [run for run in self.flow_runs() if run["deployment_id"] is not None]

    def do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine with a client of this server."""
        from prefect.settings import PREFECT_API_URL, temporary_settings

        with temporary_settings(updates={PREFECT_API_URL: self.api_url}):
            return asyncio.run(work())

    def resume(self, flow_run_id: str, **answer: Any) -> None:
        """Answer a suspended flow run, as its form on the page does."""
        from prefect.client.orchestration import get_client

        async def resume() -> None:
            async with get_client() as client:
                await client.resume_flow_run(UUID(flow_run_id), run_input=answer)

        self.do(resume)
