"""Ctrl-C: any command leaves with 130; in a run the first ends it cleanly, the second at once."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

EXIT_INTERRUPTED = 130


class Interrupt(KeyboardInterrupt):
    """Ctrl-C, as a class of our own.

    Under ``python -m``, an interpreter that saw ``KeyboardInterrupt`` itself leave an ``exec`` (as of
    a dataclass that an import defines) ends by SIGINT, whoever caught it and whatever exit code was
    asked for. A subclass it does not take for that.
    """


def raise_on_ctrl_c() -> None:
    """Let Ctrl-C raise `Interrupt`, unless it is ignored, as in a job of a script's background."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise)


def _raise(_signum: int, _frame: FrameType | None) -> None:
    raise Interrupt


@contextlib.contextmanager
def stops_cleanly(
    stop: Callable[[], None],
    say: Callable[[str], None],
    farewell: str,
    *,
    has_begun: Callable[[], bool] = lambda: True,
) -> Iterator[None]:
    """While the body runs, call ``stop`` at the first Ctrl-C and end the process at the second.

    Before the run has begun, the first raises `Interrupt` instead: starting Prefect takes seconds,
    and there is nothing yet to end cleanly. It may come out of there in the clothes of another error
    (Pydantic's serializers dress all that is raised in them), and is raised again as itself. Outside
    the main thread, where Python allows no signal handlers, nothing is changed.

    Args:
        stop: asks the run to end; may be called in any thread.
        say: writes a line for people.
        farewell: what is written before the process ends at once.
        has_begun: whether there is work to end cleanly.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    from convergence.ephemeral import stop_server  # noqa: PLC0415 - only for runs

    times = 0
    was_early = False

    def stop_and_say() -> None:
        say("Stopping: no new calls, waiting for those in flight. Ctrl-C again ends at once.")
        stop()

    def on_interrupt(_signum: int, _frame: FrameType | None) -> None:
        nonlocal times, was_early
        times += 1
        if times == 1 and not has_begun():
            was_early = True
            raise Interrupt
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
    except Exception:
        if was_early and not has_begun():
            raise Interrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
