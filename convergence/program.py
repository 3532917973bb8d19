"""Run a module as a program, as ``python -m`` does, in a process set up for a busy server.

    python -m convergence.program prefect server start

Python then looks for garbage in cycles less often (``convergence_core.garbage``), which no environment
variable can tell it.
"""

import runpy
import sys

from convergence_core.garbage import collect_rarely


def main() -> None:
    """Run the module that the arguments name, with the arguments after it."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m convergence.program MODULE [ARGUMENT ...]")
    sys.argv = sys.argv[1:]
    collect_rarely()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
