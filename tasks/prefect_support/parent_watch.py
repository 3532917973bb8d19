"""End of a server whose parent process is gone, also after ``kill -9``.

The dead cannot clean up after themselves, so the server looks at its parent's number, which the kernel
changes when the parent dies. A pipe would say so too, but a fork of the parent can keep its end open;
and Linux's parent-death signal fires when the *thread* that started the server ends.
"""

import os
import signal
import threading
import time
from typing import Final

PARENT: Final = "CONVERGENCE_PARENT"
"""Variable of a server's environment that holds the number of the process it must not outlive."""
LOOK_S: Final = 0.5
"""Pause between two looks."""
GRACE_S: Final = 5.0
"""What the server has to end by itself, before it is killed."""


def end_with_parent() -> None:
    """Let this process end soon after the parent that its environment names; none: do nothing.

    A parent that died before this was called is found as well.
    """
    parent = os.environ.pop(PARENT, "")  # not for children of our own
    if parent:
        threading.Thread(target=_watch, args=(int(parent),), name="watcher", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)
