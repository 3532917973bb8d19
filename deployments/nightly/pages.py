"""Web application of one store, in the background beside Prefect's server.

Its process is written into a file of Prefect's home with its number and start, as those of the server
and the worker are. Its log holds an address that opens the page; each use writes a new one.
"""

import json
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from deployments.nightly.services import end, start_detached
from tasks.store.journal.process_marks import ProcessMark, is_dead, process
from tasks.store.layout import write_file

START_S: Final = 60.0
"""What it has to print its address."""
_LOOK_S: Final = 0.1
_FILE: Final = "convergence-ui.json"
_LOG: Final = "convergence-ui.log"
_ADDRESS: Final = re.compile(r"http://\S+/ui/\?token=\S+")


def up(folder: Path, *, store: Path, port: int, working_dir: Path) -> str | None:
    """Start the web application, unless it runs; return an address that opens it once.

    Args:
        folder: Prefect's home.
        store: whose pages.
        port: that it listens at, on this machine.
        working_dir: of its process.

    Returns:
        The address; ``None``: it did not start, as its log says.
    """
    mark = _running(folder)
    if mark is None:
        (folder / _LOG).unlink(missing_ok=True)  # addresses of a process that is gone open nothing
        command = ["ui", "--store", str(store), "--port", str(port), "--no-open"]
        started = start_detached(
            ["-u", "-m", "convergence", *command],
            {"PYTHONUNBUFFERED": "1"},
            folder / _LOG,
            working_dir,
        )
        mark = process(started.pid)
        write_file(folder / _FILE, json.dumps(asdict(mark)))
    deadline = time.monotonic() + START_S
    while not is_dead(mark) and time.monotonic() < deadline:
        addresses = _ADDRESS.findall((folder / _LOG).read_text("utf-8"))
        if addresses:
            return str(addresses[-1])
        time.sleep(_LOOK_S)
    return None


def down(folder: Path) -> bool:
    """End what ``up`` started; return whether there was anything."""
    mark = _running(folder)
    if mark is not None:
        end(mark)
    (folder / _FILE).unlink(missing_ok=True)
    (folder / _LOG).unlink(missing_ok=True)
    return mark is not None


def log_of(folder: Path) -> Path:
    """Return the log of what ``up`` started."""
    return folder / _LOG


def _running(folder: Path) -> ProcessMark | None:
    try:
        mark = ProcessMark(**json.loads((folder / _FILE).read_text("utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return None if is_dead(mark) else mark
