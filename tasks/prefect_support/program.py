"""Run a module as a program, as ``python -m`` does, in a process set up for a busy server.

    python -m tasks.prefect_support.program prefect server start

Python then looks for garbage in cycles less often (``tasks.prefect_support.garbage_collection``), and a Prefect server
keeps less of task runs in its feed of events (``tasks.prefect_support.event_feed``): no variable of Python's or of
Prefect's can tell them. One that is to end with its parent does (``tasks.prefect_support.parent_watch``).
"""

import runpy
import sys

from tasks.prefect_support.event_feed import is_server, keep_what_went_wrong
from tasks.prefect_support.garbage_collection import collect_rarely
from tasks.prefect_support.parent_watch import end_with_parent


def main() -> None:
    """Run the module that the arguments name, with the arguments after it."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tasks.prefect_support.program MODULE [ARGUMENT ...]")
    sys.argv = sys.argv[1:]
    end_with_parent()
    collect_rarely()
    if is_server(sys.argv):
        keep_what_went_wrong()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
