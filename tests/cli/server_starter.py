"""Child process: start a process and its watcher, say their numbers, and wait to be killed.

Argument: ``yes`` for a process that does not end when it is asked to.
"""

import json
import signal
import subprocess
import sys

from convergence.watcher import start_watcher

SERVER = """
import signal, sys
if sys.argv[1] == "yes":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
signal.pause()
"""

if __name__ == "__main__":
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, sys.argv[1]], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    server.stdout.readline()
    watcher = start_watcher(server.pid)
    print(json.dumps([server.pid, watcher.pid]), flush=True)  # noqa: T201 - the answer
    signal.pause()
