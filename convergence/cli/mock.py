"""``mock``: a stand-in for providers, so that any configuration runs without a key."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from convergence.cli import console

SHARE = {"min": 0.0, "max": 1.0, "metavar": "SHARE"}
FAULTS = "Faults on purpose"
LIMITS = "Limits"
SERVER = "Server"
_TICK_S = 0.5
"""Some systems deliver no signal to a thread that waits without an end."""


def mock(  # noqa: PLR0917 - Typer's options
    host: Annotated[str, typer.Option(help="Address.", rich_help_panel=SERVER)] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="0: any free one.", rich_help_panel=SERVER)
    ] = 8765,
    require_key: Annotated[
        str | None,
        typer.Option(
            metavar="ENV",
            help="Environment variable of the key that requests must carry.",
            rich_help_panel=SERVER,
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="One JSON line per request, on disk before the answer is sent.",
            rich_help_panel=SERVER,
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Answer 400 to words that the tiny model does not know.",
            rich_help_panel=SERVER,
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the address and nothing else.")
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Of the faults: same seed, same fates.", rich_help_panel=FAULTS)
    ] = 0,
    rate_429: Annotated[
        float,
        typer.Option("--rate-429", **SHARE, help="Answered 429.", rich_help_panel=FAULTS),
    ] = 0.0,
    retry_after: Annotated[
        float,
        typer.Option(min=0.0, help="Seconds that a 429 asks for.", rich_help_panel=FAULTS),
    ] = 1.0,
    retry_after_form: Annotated[
        str, typer.Option(help="seconds, ms or date.", rich_help_panel=FAULTS)
    ] = "seconds",
    rate_500: Annotated[
        float,
        typer.Option("--rate-500", **SHARE, help="Answered 500.", rich_help_panel=FAULTS),
    ] = 0.0,
    rate_hang: Annotated[
        float, typer.Option(**SHARE, help="Answered much too late.", rich_help_panel=FAULTS)
    ] = 0.0,
    hang_seconds: Annotated[
        float, typer.Option(min=0.0, help="How late that is.", rich_help_panel=FAULTS)
    ] = 60.0,
    rate_cut: Annotated[
        float,
        typer.Option(**SHARE, help="Answered with a body cut midway.", rich_help_panel=FAULTS),
    ] = 0.0,
    rate_invalid: Annotated[
        float,
        typer.Option(**SHARE, help="Answered 200 with invalid JSON.", rich_help_panel=FAULTS),
    ] = 0.0,
    latency_ms: Annotated[
        float, typer.Option(min=0.0, help="Time before each answer.", rich_help_panel=FAULTS)
    ] = 0.0,
    fault_mode: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODE",
            help="Wrong probabilities: off_by_one, temperature, ignore, stale or "
            "no_prompt_logprobs. May be repeated.",
            rich_help_panel=FAULTS,
        ),
    ] = None,
    limit_rpm: Annotated[
        float | None,
        typer.Option(help="Requests per minute; above: 429.", rich_help_panel=LIMITS),
    ] = None,
    limit_concurrency: Annotated[
        int | None,
        typer.Option(help="Requests in flight; above: 429.", rich_help_panel=LIMITS),
    ] = None,
) -> None:
    """Serve a stand-in for OpenAI, Azure, Groq and Gemini on this machine, until Ctrl-C.

    Its answers mean nothing about real models. Standard output gets one line: the address.
    """
    from tasks.mock.mock_server import MockServer  # noqa: PLC0415 - loads uvicorn
    from tasks.mock.options import MockOptions  # noqa: PLC0415 - loads when asked for

    options: dict[str, Any] = {
        "seed": seed,
        "strict": strict,
        "rate_429": rate_429,
        "retry_after_s": retry_after,
        "retry_after_form": retry_after_form,
        "rate_500": rate_500,
        "rate_hang": rate_hang,
        "hang_s": hang_seconds,
        "rate_cut": rate_cut,
        "rate_invalid": rate_invalid,
        "latency_ms": latency_ms,
        "limit_rpm": limit_rpm,
        "limit_concurrency": limit_concurrency,
        "fault_modes": tuple(fault_mode or ()),
        "key_env": require_key,
        "log": log,
    }
    with (
        _until_stopped() as stopped,
        MockServer(MockOptions(**options), host=host, port=port) as server,
    ):
        typer.echo(server.url)
        if not quiet:
            console.say(f"OpenAI's paths are below {server.url}/v1. Ctrl-C stops.")
        while not stopped.wait(_TICK_S):
            pass


@contextlib.contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    """Within the body, Ctrl-C, SIGTERM and SIGHUP set an event in place of ending the process."""
    stopped = threading.Event()

    def stop(_signum: int, _frame: FrameType | None) -> None:
        stopped.set()

    if threading.current_thread() is not threading.main_thread():
        yield stopped  # signals are the main thread's
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    wanted = [one for one in numbers if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, stop) for one in wanted}
    try:
        yield stopped
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
