"""Ctrl-C: the first ends a run cleanly, the second at once."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from convergence.ephemeral import stop_server

EXIT_INTERRUPTED = 130


@contextlib.contextmanager
def stops_cleanly(
    stop: Callable[[], None],
    say: Callable[[str], None],
    farewell: str,
    *,
    has_begun: Callable[[], bool] = lambda: True,
) -> Iterator[None]:
    """While the body runs, call ``stop`` at the first Ctrl-C and end the process at the second.

    Before the run has begun, the first raises ``KeyboardInterrupt`` instead: starting Prefect takes
    seconds, and there is nothing yet to end cleanly. Outside the main thread, where Python allows
    no signal handlers, nothing is changed.

    Args:
        stop: asks the run to end; may be called in any thread.
        say: writes a line for people.
        farewell: what is written before the process ends at once.
        has_begun: whether there is work to end cleanly.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    times = 0

    def stop_and_say() -> None:
        say("Stopping: no new calls, waiting for those in flight. Ctrl-C again ends at once.")
        stop()

    def on_interrupt(_signum: int, _frame: FrameType | None) -> None:
        nonlocal times
        times += 1
        if times == 1 and not has_begun():
            raise KeyboardInterrupt
        if times == 1:
            # In a thread: a handler runs between any two steps of the main thread, which may
            # hold the locks that stopping and saying need.
            threading.Thread(target=stop_and_say, name="stop", daemon=True).start()
        else:
            # Answered calls are in the journal, as they are after kill -9.
            os.write(sys.stderr.fileno(), f"\n{farewell}\n".encode())
            stop_server()
            os._exit(EXIT_INTERRUPTED)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
