"""Modules run as programs, in a process set up for a busy server.

    python -m tasks.prefect_support.program prefect server start

As ``python -m`` does, but Python looks for garbage in cycles less often (by default after every 700
new container objects; Prefect makes ten thousands of them, and hardly any ends in a
cycle), and a process that its environment names a parent to ends soon after it, also after
``kill -9``: no variable of Python's or of Prefect's can tell them.

The dead cannot clean up after themselves, so the process looks at its parent's number, which the kernel
changes when the parent dies. A pipe would say so too, but a fork of the parent can keep its end open;
and Linux's parent-death signal fires when the *thread* that started the process ends.
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
"""New objects after which Python looks for garbage."""


def collect_rarely() -> None:
    """Make garbage collection rarer; a threshold that is higher already stays."""
    young, *older = gc.get_threshold()
    if 0 < young < RARELY:  # 0: garbage collection is off, on purpose
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
"""Variable of the environment that holds the number of the process it must not outlive."""
LOOK_S: Final = 0.5
"""Pause between two looks."""
GRACE_S: Final = 5.0
"""What the process has to end by itself, before it is killed."""


def main() -> None:
    """Run the module that the arguments name, with the arguments after it."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tasks.prefect_support.program MODULE [ARGUMENT ...]")
    sys.argv = sys.argv[1:]
    end_with_parent()
    collect_rarely()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


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


if __name__ == "__main__":
    main()
