"""Modules run as programs, in a process set up for a busy server.

    python -m tasks.prefect_support.program prefect server start

This is ``python -m`` with two differences that no variable of Python or Prefect sets. Python
collects cyclic garbage less often than after every 700 new container objects, since Prefect
creates tens of thousands with hardly any cycles. And the process ends soon after the parent that
its environment names, even after ``kill -9``.

The process polls its parent's id, which the kernel changes when the parent dies. A fork of the
parent could keep a pipe open, and Linux's parent-death signal fires when the *thread* that started
the process ends.
"""

import contextlib
import gc
import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Final

RARELY: Final = 50_000
"""New objects between garbage collections."""


def collect_rarely() -> None:
    """Make garbage collection rarer; a higher threshold stays."""
    young, *older = gc.get_threshold()
    if 0 < young < RARELY:  # 0 means that garbage collection is off on purpose
        gc.set_threshold(RARELY, *older)


@contextlib.contextmanager
def collecting_rarely() -> Iterator[None]:
    """Make garbage collection rarer within a block; restore the threshold after it."""
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)


PARENT: Final = "CONVERGENCE_PARENT"
"""Environment variable with the id of the process that this one must not outlive."""
LOOK_S: Final = 0.5
"""Seconds between two checks."""
GRACE_S: Final = 5.0
"""Seconds for the process to end before it is killed."""


def main() -> None:
    """Run the module in the arguments with the arguments after it."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tasks.prefect_support.program MODULE [ARGUMENT ...]")
    sys.argv = sys.argv[1:]
    end_with_parent()
    collect_rarely()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def end_with_parent() -> None:
    """End this process soon after the parent in its environment, if there is one.

    This also detects a parent that died before the call.
    """
    parent = os.environ.pop(PARENT, "")  # not inherited by our children
    if parent:
        threading.Thread(target=_watch, args=(int(parent),), name="watcher", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
