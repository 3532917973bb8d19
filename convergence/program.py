"""Run a module as a program, as ``python -m`` does, in a process set up for a busy server.

    python -m convergence.program prefect server start

Python then looks for garbage in cycles less often (``convergence_core.garbage``), and a Prefect server
keeps less of task runs in its feed of events (``convergence.event_feed``): no variable of Python's or of
Prefect's can tell them. One that is to end with its parent does (``convergence.watcher``).
"""

import runpy
import sys

from convergence.event_feed import is_server, keep_what_went_wrong
from convergence.watcher import end_with_parent
from convergence_core.garbage import collect_rarely


def main() -> None:
    """Run the module that the arguments name, with the arguments after it."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m convergence.program MODULE [ARGUMENT ...]")
    sys.argv = sys.argv[1:]
    end_with_parent()
    collect_rarely()
    if is_server(sys.argv):
        keep_what_went_wrong()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
