"""Web application of one store, in the background next to Prefect's server.

A file in Prefect's home holds the process's number and start, as for the server and the worker.
Its log holds a one-time address of the page; each use logs a new one.
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
"""Maximum seconds until it logs its address."""
_LOOK_S: Final = 0.1
_FILE: Final = "convergence-ui.json"
LOG: Final = "convergence-ui.log"
"""Log of the pages, in Prefect's home."""
_ADDRESS: Final = re.compile(r"http://\S+/ui/\?token=\S+")


def up(folder: Path, *, store: Path, port: int) -> str | None:
    """Start the web application unless it runs; return a one-time address of it.

    Args:
        folder: Prefect's home.
        store: store of the pages.
        port: local port.

    Returns:
        The address; ``None`` if it did not start, for which its log gives the reason.
    """
    mark = _running(folder)
    if mark is None:
        (folder / LOG).unlink(missing_ok=True)  # addresses of an ended process are useless
        command = ["ui", "--store", str(store), "--port", str(port), "--no-open"]
        started = start_detached(
            ["-u", "-m", "convergence", *command], {"PYTHONUNBUFFERED": "1"}, folder / LOG
        )
        mark = process(started.pid)
        write_file(folder / _FILE, json.dumps(asdict(mark)))
    deadline = time.monotonic() + START_S
    while not is_dead(mark) and time.monotonic() < deadline:
        addresses = _ADDRESS.findall((folder / LOG).read_text("utf-8"))
        if addresses:
            return str(addresses[-1])
        time.sleep(_LOOK_S)
    return None


def down(folder: Path) -> None:
    """Stop the process of ``up``; return whether there was one."""
    mark = _running(folder)
    if mark is not None:
        end(mark)
    (folder / _FILE).unlink(missing_ok=True)
    (folder / LOG).unlink(missing_ok=True)


def _running(folder: Path) -> ProcessMark | None:
    try:
        mark = ProcessMark(**json.loads((folder / _FILE).read_text("utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return None if is_dead(mark) else mark
