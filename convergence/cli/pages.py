"""``ui``: the web application over one results store."""

import contextlib
import sys
import webbrowser
from typing import Annotated

import typer

from convergence import console
from convergence.cli import locations, options


def ui(  # noqa: PLR0917 - Typer's options
    store: options.Store = None,
    config: options.Config = None,
    host: Annotated[
        str, typer.Option(help="Address. Beyond this machine, put TLS before it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8710,
    token: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ENV[=SCOPES]",
            help="Environment variable that holds a token; one of scope admin may promote, roll "
            "back, activate, approve, stop and resume. May be given again.",
        ),
    ] = None,
    allow_host: options.AllowHost = None,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open it in the browser.")
    ] = True,
) -> None:
    """Look at runs, answers and production in the browser, live.

    The address that is printed opens it once; each use prints a new one. Nothing can be changed without
    --token. Ctrl-C ends it.
    """
    from convergence.service.tokens import read_tokens  # noqa: PLC0415 - as above
    from convergence.ui.server import UiOptions, UiServer, announce  # noqa: PLC0415 - as above
    from tasks.http.environment import is_loopback  # noqa: PLC0415 - with its only user
    from tasks.pages.source import PageSource  # noqa: PLC0415 - brings NumPy
    from tasks.store import ParquetStore  # noqa: PLC0415 - brings DuckDB

    tokens = read_tokens(token) if token else None
    path = locations.store_path(store, config)
    # A folder that holds no store yet has an overview, too: it says how to begin.
    has_store = (path / "store.json").is_file()
    opened = locations.open_store(store, config) if has_store else ParquetStore(path)
    source = PageSource(opened, locations.configuration_of(store, config))
    with contextlib.closing(source):
        server = UiServer(
            source, tokens, UiOptions(host=host, port=port, allowed=tuple(allow_host or ()))
        )
        announce(
            server.sessions,
            lambda text: console.answer(f"The pages of {path}, for one browser: {text}"),
            server.url,
        )
        if not is_loopback(host):
            console.say(
                f"{host} can be reached from other machines, and what is shown travels as it is: put a "
                "proxy with TLS before it, and name it with --allow-host.",
                "yellow",
            )
        if open_browser and sys.stdout.isatty():
            webbrowser.open(server.address())
        server.run()
