"""Child process: start a server that is to end with it, say the server's number, and wait to be killed.

Argument: ``yes`` for a server that does not end when it is asked to. The server is this module, too.
"""

import os
import signal
import subprocess
import sys

from tasks.prefect_support.program import PARENT

if __name__ == "__main__":
    if sys.argv[1] == "serve":
        if sys.argv[2] == "yes":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready", PARENT in os.environ, flush=True)  # noqa: T201 - the answer
        while True:
            signal.pause()
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tasks.prefect_support.program",
            "tests.cli.server_starter",
            "serve",
            sys.argv[1],
        ],
        env={**os.environ, PARENT: str(os.getpid())},
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        print(server.pid, server.stdout.readline().strip(), flush=True)  # noqa: T201 - the answer
        signal.pause()
