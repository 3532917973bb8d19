"""Signals that end a command: Ctrl-C, SIGTERM and SIGHUP.

Ctrl-C exits with code 130. During a run, the first Ctrl-C stops it cleanly and the second ends the
process immediately. SIGTERM and SIGHUP stop a run cleanly, print the command that resumes it, and
then end the process by that signal.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

from convergence_core.errors import ProcessEnding

if TYPE_CHECKING:
    from convergence.optimize.progress import ProgressDisplay
    from tasks.run.run import Run

EXIT_INTERRUPTED = 130
END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""Signals of a service manager and of a closed terminal."""


class Interrupt(KeyboardInterrupt):
    """Ctrl-C, as a separate class.

    Under ``python -m``, an ``exec`` that raises ``KeyboardInterrupt`` itself ends the interpreter
    by SIGINT, even if the exception was caught. Dataclasses of an import run such an ``exec``. A
    subclass avoids that.
    """


class Terminated(ProcessEnding):
    """SIGTERM or SIGHUP, raised once the results are saved."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.farewell = ""
        """Command that resumes the run; empty if nothing has started."""

    def end_process(self) -> None:
        """End this process by the signal, so that its parent sees which one."""
        signal.signal(self.number, signal.SIG_DFL)
        signal.raise_signal(signal.Signals(self.number))


def raise_on_ctrl_c() -> None:
    """Let Ctrl-C raise `Interrupt`, unless it is ignored, as in a background job."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise)


def _raise(_signum: int, _frame: FrameType | None) -> None:
    raise Interrupt


@contextlib.contextmanager
def stops_cleanly(run: "Run", progress: "ProgressDisplay", farewell: str) -> Iterator[None]:
    """Within the block, let the first Ctrl-C and each SIGTERM or SIGHUP end the run cleanly.

    The first Ctrl-C stops the run; a second one ends the process. SIGTERM and SIGHUP leave the
    block by an exception: within a flow run Prefect's, which then sends the signal again, and
    outside of one `Terminated`. Prefect gets SIGHUP as SIGTERM, the only one that it handles.

    Before the run has begun, the first Ctrl-C raises `Interrupt` instead: starting Prefect takes
    seconds, and there is nothing to stop cleanly yet. Other code may wrap it (Pydantic's
    serializers wrap every exception); this function then raises the original. Outside the main
    thread, where Python allows no signal handlers, it does nothing.

    Args:
        run: the run that the block executes.
        progress: display that reports the stop.
        farewell: line to write before the process ends immediately.

    Raises:
        Interrupt: Ctrl-C before the run has begun.
        Terminated: SIGTERM or SIGHUP.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = _Handlers(run, progress, farewell)
    # An ignored signal stays ignored, such as SIGHUP under nohup.
    numbers = [number for number in END_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handlers.on_end) for number in numbers}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, handlers.on_interrupt)
    try:
        yield
    except Exception:
        if handlers.early is not None and not run.has_begun:
            raise handlers.early from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Handlers:
    """Signal handlers of a process during a run."""

    def __init__(self, run: "Run", progress: "ProgressDisplay", farewell: str) -> None:
        self._run, self._progress, self._farewell = run, progress, farewell
        self._n_interrupts = 0
        self._ended_by: int | None = None
        self._terminals = [number for number in (1, 2) if os.isatty(number)]
        self.early: BaseException | None = None
        """Exception raised before the run began."""

    def on_interrupt(self, _signum: int, _frame: FrameType | None) -> None:
        """Handle a Ctrl-C."""
        self._n_interrupts += 1
        if self._n_interrupts == 1 and not self._run.has_begun:
            self.early = Interrupt()
            raise self.early
        if self._n_interrupts == 1:
            # In a thread: a handler may interrupt the main thread while it holds the locks that
            # stopping and printing need.
            threading.Thread(target=self._stop_and_say, name="stop", daemon=True).start()
        else:
            from tasks.prefect_support.temporary_server import stop_server  # noqa: PLC0415 - only for runs

            # The journal has all answered calls, as it does after kill -9.
            os.write(sys.stderr.fileno(), f"\n{self._farewell}\n".encode())
            stop_server()
            os._exit(EXIT_INTERRUPTED)

    def on_end(self, number: int, _frame: FrameType | None) -> None:
        """Handle a SIGTERM or SIGHUP."""
        if self._ended_by is None:
            self._ended_by = number
            for descriptor in self._terminals:
                if not os.isatty(descriptor):  # a closed terminal: writing to it would fail
                    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        if number == signal.SIGHUP and signal.getsignal(signal.SIGTERM) != self.on_end:
            signal.raise_signal(signal.SIGTERM)  # to Prefect, whose flow run is in progress
            return
        ended = Terminated(self._ended_by)
        if not self._run.has_begun:
            self.early = ended
        raise ended

    def _stop_and_say(self) -> None:
        text = "Stopping: no new calls, waiting for running ones. Ctrl-C again stops at once."
        self._progress.say(text, "yellow")
        self._run.stop()
