"""The command ``convergence``.

Exit codes: 0 done; 1 error; 2 bad input; 3 budget reached; 100 gate not passed; 130 interrupted.
Errors print one message, with a traceback only under ``--debug``.
"""

import os
import sys
from collections.abc import Sequence

from convergence_core.errors import ConvergenceError
from convergence_core.packages import check_packages
from tasks.prefect_support.program import collect_rarely


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; raises only with ``--debug``."""
    from convergence import console  # noqa: PLC0415 - after the interpreter's own start
    from convergence.cli.interrupts import EXIT_INTERRUPTED  # noqa: PLC0415 - as above

    console.settings.debug = False
    console.settings.json = False
    try:
        check_packages(("convergence", "convergence_core", "flows", "tasks"))
        from convergence.cli.app import app  # noqa: PLC0415 - Typer only once the guard is passed

        app(_flags_first(list(arguments)), prog_name="convergence")
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else int(bool(leave.code))
    except ConvergenceError as error:
        if console.settings.debug:
            raise
        console.fail(error)
        return error.exit_code
    except KeyboardInterrupt:
        console.say("Interrupted.")
        return EXIT_INTERRUPTED
    except Exception as error:
        if console.settings.debug:
            raise
        console.fail_unexpectedly(error)
        return 1
    return 0


def _flags_first(arguments: list[str]) -> list[str]:
    """Move ``--debug`` and ``--all`` to the front for the application; data after ``--`` stay."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    head = arguments[:end]
    has_command = any(not argument.startswith("-") for argument in head)
    flags = [flag for flag in ("--debug", "--all")[: 1 if has_command else 2] if flag in head]
    return flags + [argument for argument in head if argument not in flags] + arguments[end:]


def main() -> None:
    """Run the command line's arguments and leave with the exit code."""
    from convergence.cli.interrupts import Terminated, raise_on_ctrl_c  # noqa: PLC0415 - as in ``run``

    raise_on_ctrl_c()
    # The workers provide the parallelism. Our matrices are small, and a second BLAS thread spends
    # more time waiting than computing. Set this before NumPy loads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    collect_rarely()
    try:
        code = run(sys.argv[1:])
    except Terminated as ended:
        if ended.farewell:
            from convergence import console  # noqa: PLC0415 - as in ``run``

            console.say(ended.farewell)
        ended.end_process()
        raise
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output (head, less) has closed the pipe. Redirect standard output to
        # the null device, so that the interpreter's last flush does not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


if __name__ == "__main__":
    main()
