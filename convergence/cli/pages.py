"""``ui`` and ``demo``: the pages of a results store."""

import contextlib
import os
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convergence import console
from convergence.cli import locations, options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from convergence.service.tokens import TokenRegistry
    from convergence.ui.server import UiServer


def ui(  # noqa: PLR0917 - Typer's options
    token: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ENV[=SCOPES]",
            help="Environment variable that holds a token. Scope admin may promote, roll back, "
            "activate, approve, stop and resume. Repeatable.",
        ),
    ] = None,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the pages in the browser.")
    ] = True,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8710,
    allow_host: options.AllowHost = None,
    store: options.Store = None,
    config: options.Config = None,
) -> None:
    """Show runs, answers and production in the browser, live.

    Prints a one-time login link, and a new one after each use. The pages are read-only without --token.
    Ctrl-C stops.
    """
    from convergence.service.tokens import read_tokens  # noqa: PLC0415 - brings FastAPI

    tokens = read_tokens(token) if token else None
    with _server(store, config, host, port, tokens, allow_host) as server:
        _serve(server, locations.store_path(store, config), opens=open_browser)


def demo(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder.")] = Path(
        "prompt-demo"
    ),
    serve: Annotated[
        bool, typer.Option("--serve/--no-serve", help="Show the answers in the browser.")
    ] = True,
) -> None:
    """Improve a prompt with a mock model, and show the answers: no key, one minute."""
    from convergence.cli import begin, optimize  # noqa: PLC0415 - with their only user
    from convergence.finished_runs import finished_run  # noqa: PLC0415 - as above
    from convergence.templates import plan_files  # noqa: PLC0415 - as above
    from convergence_core.errors import ConfigurationError  # noqa: PLC0415 - with its only user

    if folder.exists():
        fix = "Name another folder, or remove this one."
        raise ConfigurationError.of("DIR", "must not exist yet", fix, value=str(folder))
    begin.write_files(folder, plan_files("prompt"), force=False)
    console.say(f"Improving the prompt in {folder} with a mock model, which needs no key.")
    os.chdir(folder)
    optimize.optimize(offline=True)
    opened = locations.open_store(None, None)
    if serve and sys.stdout.isatty():
        page = f"runs/{finished_run(opened, None).label}/answers"
        with _server(None, None, port=0) as server:
            _serve(server, opened.path, page=page)
    else:
        console.answer(f"Answers side by side: cd {folder} && convergence ui")


@contextlib.contextmanager
def _server(  # noqa: PLR0917 - the options of ``ui``
    store: Path | None,
    config: Path | None,
    host: str = "127.0.0.1",
    port: int = 8710,
    tokens: "TokenRegistry | None" = None,
    allow_host: list[str] | None = None,
) -> "Iterator[UiServer]":
    from convergence.ui.server import UiServer  # noqa: PLC0415 - brings FastAPI
    from tasks.pages.source import PageSource  # noqa: PLC0415 - brings NumPy
    from tasks.store.tables.parquet_store import ParquetStore  # noqa: PLC0415 - brings DuckDB

    path = locations.store_path(store, config)
    # The overview of a folder without a store shows the first command.
    has_store = (path / "store.json").is_file()
    opened = locations.open_store(store, config) if has_store else ParquetStore(path)
    source = PageSource(opened, locations.configuration_of(store, config))
    with contextlib.closing(source):
        yield UiServer(source, tokens, host=host, port=port, allowed=allow_host or ())


def _serve(server: "UiServer", path: Path, *, page: str = "", opens: bool = True) -> None:
    from convergence.ui.server import announce  # noqa: PLC0415 - brings FastAPI
    from tasks.http.environment import is_loopback  # noqa: PLC0415 - with its only user

    announce(
        server.sessions,
        lambda text: console.answer(f"Pages of {path}, one-time login link: {text}"),
        server.url,
        page,
    )
    host = server.host
    if not is_loopback(host):
        console.say(
            f"Other machines can reach {host}, and pages travel unencrypted. Put a proxy with TLS in "
            "front, and name it with --allow-host.",
            "yellow",
        )
    if opens and sys.stdout.isatty():
        webbrowser.open(server.address(page))
    server.run()
