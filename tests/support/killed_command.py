"""Child process: the command line, killed by SIGKILL at a counted step of what it writes.

Arguments: the project's folder, the step before which to die (0 means none), and the command's arguments.
A step opens a file of the folder for writing, renames or removes one, makes a folder, or starts or ends a
sync. A process that survives writes the number of steps to ``steps.txt``.
"""

import atexit
import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

STEPS_FILE: Final = "steps.txt"
_CHANGES: Final = frozenset({"os.rename", "os.remove", "os.mkdir"})


def count_steps(folder: str, last: int) -> None:
    """Count the steps of this process from now on; die at the last."""
    numbers = itertools.count(1)
    sync = os.fsync

    def step() -> int:
        number = next(numbers)
        if number == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    def see(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            path = arguments[0]
            if isinstance(path, (str, Path)) and os.path.abspath(path).startswith(folder):  # noqa: PTH100 - no link is followed
                step()

    def counted(descriptor: int) -> None:
        step()
        sync(descriptor)
        step()

    sys.addaudithook(see)
    setattr(os, "fsync", counted)  # noqa: B010 - a double, not its API
    atexit.register(lambda: Path(folder, STEPS_FILE).write_text(str(step()), encoding="utf-8"))


if __name__ == "__main__":
    from convergence.__main__ import main

    count_steps(sys.argv[1], int(sys.argv[2]))
    sys.argv = ["convergence", *sys.argv[3:]]
    main()
