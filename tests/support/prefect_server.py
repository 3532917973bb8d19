"""Real Prefect server on loopback, in a separate process with its own home."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tasks.prefect_support.settings import SERVER_PROFILE


class PrefectServer:
    """Context manager of a server that answers once entered and is gone after exit."""

    def __init__(
        self,
        home: Path,
        *,
        startup_s: float = 300.0,
    ) -> None:
        self.home = home
        self.port = free_port()
        self._startup_s = startup_s
        self._log = home / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def api_url(self) -> str:
        """Address of its API."""
        return f"http://127.0.0.1:{self.port}/api"

    @property
    def pid(self) -> int:
        """The process's number, once it was started."""
        assert self._process is not None
        return self._process.pid

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
        deadline = time.monotonic() + self._startup_s
        for _ in range(3):  # another process may take the port before the server does
            self._start()
            if self._answers_before(deadline):
                return self
            self.__exit__(None, None, None)
            self.port = free_port()
        raise RuntimeError(f"the Prefect server did not start:\n{self._log.read_text()[-3000:]}")

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "tasks.prefect_support.program", "prefect", "server", "start",
                    "--host", "127.0.0.1", "--port", str(self.port),
                ],
                env={**os.environ, **SERVER_PROFILE, **self.environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def _answers_before(self, deadline: float) -> bool:
        """Wait until the server answers. Return False if it exited or is late."""
        assert self._process is not None
        # One client: each reads the certificates of the machine anew, which no loopback needs.
        with httpx.Client(timeout=10) as client:
            while self._process.poll() is None and time.monotonic() < deadline:
                with contextlib.suppress(httpx.TransportError):
                    if client.get(f"{self.api_url}/health").status_code == 200:
                        return True
                time.sleep(0.1)
        return False

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


_STARTED: list[PrefectServer] = []
"""Shared servers that this process started."""


def join_server(folder: Path) -> str:
    """Return the API address of a folder's server. The first caller starts it.

    Processes share it and cannot tell which leaves last, so ``end_server`` stops it.
    """
    record = folder / "server.json"
    with (folder / "door").open("w") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        if not record.exists():
            home = folder / "home"
            home.mkdir(exist_ok=True)
            server = PrefectServer(home)
            server.__enter__()
            _STARTED.append(server)
            record.write_text(json.dumps([server.api_url, server.pid]), encoding="utf-8")
    address: str = json.loads(record.read_text(encoding="utf-8"))[0]
    return address


def end_server(folder: Path) -> None:
    """End the server of a folder, if one was started there."""
    record = folder / "server.json"
    for server in _STARTED:  # a child of this process, which has to wait for it
        server.__exit__(None, None, None)
    if not record.exists():
        return
    pid: int = json.loads(record.read_text(encoding="utf-8"))[1]
    deadline = time.monotonic() + 20
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(pid, signal.SIGTERM)
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
