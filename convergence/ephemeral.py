"""Prefect's server for the length of one process, which does not outlive it.

Prefect starts that server as a child and ends it at exit, which a killed process never reaches.
Nobody would end the server then: it keeps its port, its memory and our standard output.
"""

import subprocess
from typing import Any

from prefect.server.api.server import SubprocessASGIServer

from convergence.watcher import start_watcher


class WatchedServer(SubprocessASGIServer):
    """Prefect's temporary server, ended by a watcher if this process cannot.

    Prefect keeps one such server for each process, whatever its class, so making the first one
    here is enough: every client of Prefect's uses it. A server that was there before stays as it
    is.
    """

    _watcher: "subprocess.Popen[bytes] | None" = None

    def _run_uvicorn_command(self) -> "subprocess.Popen[Any]":
        process = super()._run_uvicorn_command()
        self._end_watcher()  # of a server that found its port taken
        self._watcher = start_watcher(process.pid)
        return process

    def stop(self) -> None:
        """End the server, then its watcher."""
        super().stop()
        self._end_watcher()

    def _end_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.wait()
            self._watcher = None
