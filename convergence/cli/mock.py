"""``mock``: a mock of providers, for runs without a key."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from convergence import console

_TICK_S = 0.5
"""Seconds between checks for signals; some systems deliver none during an endless wait."""


def _server(help: str, *names: str, **more: Any) -> Any:  # noqa: A002 - Typer's name
    return typer.Option(*names, help=help, rich_help_panel="Server", **more)


def _fault(help: str, *names: str, **more: Any) -> Any:  # noqa: A002 - as above
    return typer.Option(*names, help=help, rich_help_panel="Faults on purpose", **more)


def _share(help: str, *names: str) -> Any:  # noqa: A002 - as above
    return _fault(help, *names, min=0.0, max=1.0, metavar="SHARE")


_LOG = "Log each request as a JSON line before answering it."
_VARIES = "Vary answers above temperature 0, as real models do."


def mock(  # noqa: PLR0917 - Typer's options
    host: Annotated[str, _server("Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, _server("Port; 0 picks a free one.", min=0, max=65535)] = 8765,
    log: Annotated[Path | None, _server(_LOG, metavar="FILE")] = None,
    varies: Annotated[bool, _server(_VARIES, "--varies")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the address.")] = False,
    seed: Annotated[int, _fault("Seed of the faults.")] = 0,
    rate_429: Annotated[float, _share("Share answered with 429.", "--rate-429")] = 0.0,
    retry_after: Annotated[float, _fault("Retry-After of a 429, in seconds.", min=0.0)] = 1.0,
    rate_500: Annotated[float, _share("Share answered with 500.", "--rate-500")] = 0.0,
    rate_hang: Annotated[float, _share("Share answered much too late.")] = 0.0,
    hang_seconds: Annotated[float, _fault("Seconds of delay of a late answer.", min=0.0)] = 60.0,
    rate_cut: Annotated[float, _share("Share of bodies cut midway.")] = 0.0,
    rate_invalid: Annotated[float, _share("Share answered with 200 and invalid JSON.")] = 0.0,
    latency_ms: Annotated[float, _fault("Delay of each answer, in ms.", min=0.0)] = 0.0,
) -> None:
    """Serve a mock of OpenAI, Azure, Groq and Gemini on this machine, until Ctrl-C.

    Its answers say nothing about real models. Standard output gets one line: the address.
    """
    from tasks.mock.mock_server import MockServer  # noqa: PLC0415 - loads uvicorn
    from tasks.mock.options import MockOptions  # noqa: PLC0415 - only for this command

    options = MockOptions(
        seed=seed,
        varies=varies,
        log=log,
        rate_429=rate_429,
        retry_after_s=retry_after,
        rate_500=rate_500,
        rate_hang=rate_hang,
        hang_s=hang_seconds,
        rate_cut=rate_cut,
        rate_invalid=rate_invalid,
        latency_ms=latency_ms,
    )
    with (
        _until_stopped() as stopped,
        MockServer(options, host=host, port=port) as server,
    ):
        typer.echo(server.url)
        if not quiet:
            console.say(f"OpenAI's paths: {server.url}/v1. Ctrl-C stops.")
        while not stopped.wait(_TICK_S):
            pass


@contextlib.contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    """Set an event on Ctrl-C, SIGTERM or SIGHUP within the block, without ending the process."""
    from convergence.service.socket_server import signals_handled  # noqa: PLC0415 - loads uvicorn

    stopped = threading.Event()
    with signals_handled(lambda _signum, _frame: stopped.set()):
        yield stopped
