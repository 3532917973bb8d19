"""A worker process of ``tasks.runners.processes``: fulfils the orders that its pipe brings."""

import signal
import threading
from multiprocessing.connection import Connection
from typing import Any

from tasks.functions.child_process import parent_pipe


def main() -> None:
    """Serve orders from the parent's pipe."""
    pipe = parent_pipe()
    # Ctrl-C in a terminal goes to the whole group; the run tells its workers when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from tasks.runners.worker import Worker  # noqa: PLC0415 - the parent may die meanwhile

    worker = Worker()
    # The pipe is read while an order is fulfilled, so that a stop comes through.
    while True:
        try:
            message: Any = pipe.recv()
        except EOFError:
            message = None
        if message is None:
            worker.close()
            return
        kind, subject = message
        if kind == "stop":
            worker.stop(subject)
        else:
            threading.Thread(target=_fulfil, args=(worker, pipe, subject), daemon=True).start()


def _fulfil(worker: Any, pipe: Connection, order: bytes) -> None:
    pipe.send_bytes(worker.execute(order))
