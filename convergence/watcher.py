"""Ends a server when the process that started it is gone, also after ``kill -9``.

This file is run as a script in a process of its own, with nothing but the standard library: the
dead cannot clean up after themselves. It looks at its parent's number, which the kernel changes
when the parent dies. A pipe would say so too, but a fork of the parent can keep its end open; and
Linux's parent-death signal fires when the *thread* that started the server ends.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

LOOK_S = 0.5
"""Pause between two looks."""
GRACE_S = 5.0
"""What the server has to end by itself, before it is killed."""


def start_watcher(server: int) -> "subprocess.Popen[bytes]":
    """Start a process that ends process ``server`` when this one is gone.

    It ends by itself with the server. A session of its own keeps the terminal's signals from it.
    """
    import subprocess  # noqa: PLC0415 - the watcher itself needs none

    return subprocess.Popen(  # noqa: S603 - this interpreter, this file, two numbers
        [sys.executable, "-I", "-S", str(Path(__file__)), str(os.getpid()), str(server)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def watch(parent: int, server: int) -> None:
    """Wait until either process is gone; the server does not outlive its parent."""
    while os.getppid() == parent:
        if not _signalled(server, 0):
            return
        time.sleep(LOOK_S)
    deadline = time.monotonic() + GRACE_S
    _signalled(server, signal.SIGTERM)
    while _signalled(server, 0):
        if time.monotonic() > deadline:
            _signalled(server, signal.SIGKILL)
            return
        time.sleep(0.05)


def _signalled(pid: int, number: int) -> bool:
    """Send a signal, 0 for none; return whether there is such a process."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    watch(int(sys.argv[1]), int(sys.argv[2]))
