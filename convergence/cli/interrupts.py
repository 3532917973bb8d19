"""Signals that end a command: Ctrl-C, SIGTERM and SIGHUP.

At Ctrl-C any command leaves with 130; in a run the first ends it cleanly, the second at once. SIGTERM
and SIGHUP end a run cleanly, name the command that resumes it, and then the process by that signal.
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

    Under ``python -m``, an interpreter that saw ``KeyboardInterrupt`` itself leave an ``exec`` (as of
    a dataclass that an import defines) ends by SIGINT, even if it was caught. A subclass avoids that.
    """


class Terminated(ProcessEnding):
    """SIGTERM or SIGHUP, raised once the results are saved."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.farewell = ""
        """Command that continues; empty if nothing has started."""

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
    """While the body runs, let the first Ctrl-C and each SIGTERM or SIGHUP end it cleanly.

    Ctrl-C stops the run, and a second one ends the process. SIGTERM and SIGHUP leave the body by an
    exception: Prefect's within a flow run, which then sends the signal again, and `Terminated` outside
    of one. SIGHUP reaches Prefect as SIGTERM, the one that it knows.

    Before the run has begun, the first Ctrl-C raises `Interrupt` instead: starting Prefect takes
    seconds, and there is nothing yet to end cleanly. It may come out of there in the clothes of another
    error (Pydantic's serializers dress all that is raised in them), and is raised again as itself.
    Outside the main thread, where Python allows no signal handlers, nothing is changed.

    Args:
        run: the run, which the body executes.
        progress: shows that the run stops.
        farewell: line to write before the process ends at once.

    Raises:
        Interrupt: Ctrl-C before the run has begun.
        Terminated: SIGTERM or SIGHUP.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = _Handlers(run, progress, farewell)
    # One that is ignored stays so, as SIGHUP under nohup.
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
        """Exception raised before the run had begun."""

    def on_interrupt(self, _signum: int, _frame: FrameType | None) -> None:
        """Take a Ctrl-C."""
        self._n_interrupts += 1
        if self._n_interrupts == 1 and not self._run.has_begun:
            self.early = Interrupt()
            raise self.early
        if self._n_interrupts == 1:
            # In a thread: a handler runs between any two steps of the main thread, which may
            # hold the locks that stopping and saying need.
            threading.Thread(target=self._stop_and_say, name="stop", daemon=True).start()
        else:
            from tasks.prefect_support.temporary_server import stop_server  # noqa: PLC0415 - only for runs

            # Answered calls are in the journal, as they are after kill -9.
            os.write(sys.stderr.fileno(), f"\n{self._farewell}\n".encode())
            stop_server()
            os._exit(EXIT_INTERRUPTED)

    def on_end(self, number: int, _frame: FrameType | None) -> None:
        """Take a SIGTERM or SIGHUP."""
        if self._ended_by is None:
            self._ended_by = number
            for descriptor in self._terminals:
                if not os.isatty(descriptor):  # it was closed: writing there would fail
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
