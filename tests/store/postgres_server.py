"""A private Postgres for the tests: started at its first use, stopped with the test process.

It listens on a Unix socket in a folder of its own, wants a password, and trades durability for
speed. Debian's package `postgresql` brings it; without it tests that ask for it are skipped.
"""

import atexit
import contextlib
import functools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import uuid
from pathlib import Path
from urllib.parse import quote

import pytest

PASSWORD = "c4n4ry/p@ss word"  # noqa: S105 - of a server that lives as long as the tests
_READY = "database system is ready to accept connections"


class PostgresServer:
    """A server of its own, running."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))
        password = self._folder / "password"
        password.write_text(PASSWORD)
        self._prefix = [*self._demoted(), "--"]
        command: list[str | Path] = [
            *self._prefix, binaries / "initdb", "-D", self._folder / "data", "-U", "tester",
            "-E", "UTF8", "--no-locale", "--no-sync", "--auth=scram-sha-256",
            f"--pwfile={password}",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder)
        self.start()

    def start(self) -> None:
        """Start it and wait until it says that it is ready."""
        command: list[str | Path] = [
            *self._prefix, self._binaries / "postgres", "-D", self._folder / "data",
            "-k", self._folder, "-c", "listen_addresses=", "-c", "fsync=off",
            "-c", "shared_buffers=16MB",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, cwd=self._folder
        )
        self._said: list[str] = []
        has_answered = threading.Event()

        def listen() -> None:
            assert self._process.stderr is not None
            with self._process.stderr as lines:
                for line in lines:
                    self._said.append(line)
                    if _READY in line:
                        has_answered.set()
            has_answered.set()

        self._listener = threading.Thread(target=listen, daemon=True)
        self._listener.start()
        has_answered.wait()
        assert _READY in self._said[-1], "".join(self._said)

    def stop(self) -> None:
        """Stop it: its connections drop."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        self._listener.join()

    def kill(self) -> None:
        """Kill it and all of its processes, as kill -9 or a power cut does."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        for pid in (self._process.pid, *map(int, children.split())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join()

    def remove(self) -> None:
        """Stop it and remove its files."""
        self.stop()
        shutil.rmtree(self._folder)

    def url(self, schema: str = "public", *, password: str = PASSWORD) -> str:
        """Return the URL of one schema."""
        return (
            f"postgresql://tester:{quote(password, safe='')}@/postgres"
            f"?host={quote(str(self._folder), safe='')}&options=-csearch_path%3D{schema}"
        )

    def new_schema(self) -> str:
        """Create an empty schema and return its URL."""
        import psycopg

        name = f"t{uuid.uuid4().hex[:16]}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return self.url(name)

    def prefect_url(self) -> str:
        """Return the URL of a new database, as Prefect's server takes it."""
        import psycopg

        name = f"prefect{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        password = quote(PASSWORD, safe="")
        return f"postgresql+asyncpg://tester:{password}@/{name}?host={quote(str(self._folder))}"

    def _demoted(self) -> list[str]:
        """Return how to run a program that refuses root and shall not outlive this process."""
        command = ["setpriv", "--pdeathsig", "QUIT"]
        if os.geteuid() != 0:
            return command
        names = {entry.pw_name for entry in pwd.getpwall()}
        user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
        for path in (self._folder, *self._folder.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
        ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}"]
        return [*command, *ids, "--clear-groups"]


@functools.cache
def postgres_server() -> PostgresServer:
    """Return the server of this test process; the test is skipped where none is installed."""
    pytest.importorskip("psycopg", reason="needs psycopg: pip install '.[postgres]'")
    folders = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    folders += [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            break
    else:
        pytest.skip("needs a Postgres server: apt-get install postgresql")
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv, of Debian's package util-linux")
    server = PostgresServer(folder)
    atexit.register(server.remove)
    return server
