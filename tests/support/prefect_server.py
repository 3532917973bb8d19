"""A real Prefect server on loopback, in a process and with a home of its own."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from flows.environment import SERVER_PROFILE


class PrefectServer:
    """Start on entry, answer before entry returns, be gone after exit."""

    def __init__(self, home: Path, *, startup_s: float = 120.0) -> None:
        self.home = home
        self.port = _free_port()
        self.api_url = f"http://127.0.0.1:{self.port}/api"
        self._startup_s = startup_s
        self._log = home / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which other processes use this server."""
        return {
            "PREFECT_API_URL": self.api_url,
            "PREFECT_HOME": str(self.home),
            "DO_NOT_TRACK": "1",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        }

    def __enter__(self) -> Self:
        """Start the server and wait until it answers."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "prefect", "server", "start",
                    "--host", "127.0.0.1", "--port", str(self.port),
                ],
                env={**os.environ, **SERVER_PROFILE, **self.environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + self._startup_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                if httpx.get(f"{self.api_url}/health", timeout=2).status_code == 200:
                    return self
            except httpx.TransportError:
                time.sleep(0.2)
        self.__exit__(None, None, None)
        raise RuntimeError(f"the Prefect server did not start:\n{self._log.read_text()[-3000:]}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the server."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
