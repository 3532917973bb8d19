"""``serve``: arms and rewards over HTTP."""

import contextlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convergence import console
from convergence.cli import locations, options
from convergence.cli.chat import MOCK_ANSWERS
from convergence.cli.optimize import mock_server
from convergence_core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from convergence.service.policy import PolicyMount
    from tasks.chat.logged_chat import LoggedChat
    from tasks.inputs.loader import Loaded
    from tasks.store.feedback.feedback_store import FeedbackStore
    from tasks.store.runtime.runtime_store import RuntimeStore


def serve(  # noqa: PLR0917 - Typer's options
    token: options.Tokens = None,
    chat: Annotated[
        bool,
        typer.Option(
            "--chat",
            help="Answer /v1/chat/completions in OpenAI's format, with the model of the configuration.",
        ),
    ] = False,
    policy: Annotated[
        bool,
        typer.Option(
            "--policy",
            help="Serve the policy of `convergence policy serve` below /policy.",
        ),
    ] = False,
    pages: Annotated[
        bool, typer.Option("--ui/--no-ui", help="Show runs, answers and production at /ui.")
    ] = True,
    offline: options.Offline = False,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8700,
    allow_host: options.AllowHost = None,
    docs: options.OpenDocs = False,
    store: options.Store = None,
    config: options.Config = None,
    rate: options.Rate = 2_000.0,
    max_usd: Annotated[
        float | None,
        typer.Option(
            min=1e-9,
            help="Most US dollars a day (UTC) that answers of --chat may cost. Default: no limit.",
            rich_help_panel=options.LIMITS,
        ),
    ] = None,
    judge_share: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Share of the answers of --chat that the configured judge rewards."
        ),
    ] = 0.0,
    connections: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most open connections. Default: 1000, or the limit of `ulimit -n`.",
            rich_help_panel=options.LIMITS,
        ),
    ] = None,
) -> None:
    """Serve settings to requests over HTTP, and learn from their rewards.

    Every path needs a bearer token. The pages at /ui need the printed login link or a token of scope
    admin. Ctrl-C stops it; every answer is kept.
    """
    from convergence.service.auth import allowed_hosts  # noqa: PLC0415 - brings FastAPI
    from convergence.service.server import Service, ServiceOptions  # noqa: PLC0415 - brings FastAPI
    from convergence.service.tokens import read_tokens  # noqa: PLC0415 - as above
    from convergence.ui.app import ServedChat  # noqa: PLC0415 - as above
    from convergence.ui.guard import UiGuard  # noqa: PLC0415 - as above
    from convergence.ui.server import announce, guarded  # noqa: PLC0415 - as above
    from convergence.ui.sessions import BrowserSessions  # noqa: PLC0415 - as above
    from tasks.http.environment import is_loopback  # noqa: PLC0415 - with its only user
    from tasks.inputs.loader import load  # noqa: PLC0415 - brings pydantic
    from tasks.inputs.storage import bound_folder  # noqa: PLC0415 - as above
    from tasks.pages.source import PageSource  # noqa: PLC0415 - brings NumPy
    from tasks.store.feedback.feedback_store import FeedbackStore  # noqa: PLC0415 - brings SQLite
    from tasks.store.runtime.runtime_store import RuntimeStore  # noqa: PLC0415 - brings SQLite
    from tasks.store.tables.parquet_store import ParquetStore  # noqa: PLC0415 - brings DuckDB

    tokens = read_tokens(token or [])
    if offline and not (chat or policy):
        raise ConfigurationError.of(
            "--offline", "needs `--chat` or `--policy`", "Add one, or remove --offline."
        )
    _check_paid_options(max_usd, judge_share, is_paid=chat and not offline)
    service_options = ServiceOptions(
        host=host,
        port=port,
        rate=rate or None,
        connections=connections,
        has_docs=docs,
    )
    loaded = load(config or options.CONFIG_FILE) if chat else None
    if loaded is not None and store is None:
        bound_folder(loaded)  # set the adapters' address, so that they can be fetched
    with (
        mock_server(wanted=offline) as mock_url,
        RuntimeStore(locations.store_path(store, config)) as opened,
        contextlib.closing(
            PageSource(ParquetStore(opened.root), locations.configuration_of(store, config))
        ) as source,
        FeedbackStore(opened.root) as feedback,
        _policy(opened.root, config, is_wanted=policy, mock_url=mock_url) as mount,
    ):
        talk = (
            None
            if loaded is None
            else _chat(
                loaded, feedback, opened, mock_url, max_usd=max_usd, judge_share=judge_share
            )
        )
        sessions = BrowserSessions()
        note = MOCK_ANSWERS if offline else None
        served = (
            None
            if talk is None
            else ServedChat(roles=talk.role_names, user=options.account_name(), note=note)
        )

        def app(host: str, port: int) -> UiGuard:
            return guarded(
                source, sessions, tokens, hosts=allowed_hosts(host, port, allow_host or ()),
                port=port, ends=lambda: service.is_ending, chat=served,
            )  # fmt: skip

        service = Service(
            opened, tokens, service_options, app if pages else None, talk, policy=mount
        )
        console.answer(f"Serving {opened.root} at {service.url}")
        if talk is not None:
            console.answer(f"OpenAI's paths: {service.url}/v1; the models are the roles.")
            if offline:
                console.say(MOCK_ANSWERS, "yellow")
        if pages:
            announce(
                sessions,
                lambda text: console.answer(f"Pages, one-time login link: {text}"),
                service.url,
            )
        if not is_loopback(host):
            console.say(
                f"Other machines can reach {host}, and tokens travel unencrypted. Put a proxy with TLS "
                "in front.",
                "yellow",
            )
        service.run()


def _check_paid_options(max_usd: float | None, judge_share: float, *, is_paid: bool) -> None:
    for option, value in (("--max-usd", max_usd), ("--judge-share", judge_share or None)):
        if value is not None and not is_paid:
            rule, fix = "needs `--chat` without `--offline`", f"Add --chat, or remove {option}."
            raise ConfigurationError.of(option, rule, fix)
        if value is not None and not math.isfinite(value):
            raise ConfigurationError.of(
                option, "must be finite", "Remove it for no limit.", value=str(value)
            )


@contextlib.contextmanager
def _policy(
    root: Path, config: Path | None, *, is_wanted: bool, mock_url: str | None
) -> "Iterator[PolicyMount | None]":
    if not is_wanted:
        yield None
        return
    from convergence.cli.learn.policy import opened_policy  # noqa: PLC0415 - only where it is needed
    from convergence_core.judges.text_features import HASHED_NGRAMS  # noqa: PLC0415 - brings NumPy
    from tasks.policy.records import PolicySettings  # noqa: PLC0415 - as above

    settings = PolicySettings.of(HASHED_NGRAMS, 1536)
    with opened_policy(root, settings, config, mock_url=mock_url, prefix="/policy") as mount:
        yield mount


def _chat(
    loaded: "Loaded",
    feedback: "FeedbackStore",
    runtime: "RuntimeStore",
    mock_url: str | None,
    *,
    max_usd: float | None,
    judge_share: float,
) -> "LoggedChat":
    from tasks.chat.logged_chat import LoggedChat  # noqa: PLC0415 - brings httpx and NumPy
    from tasks.chat.paid_answers import PaidAnswers  # noqa: PLC0415 - as above
    from tasks.inputs.environment import Environment  # noqa: PLC0415 - as above

    environment = Environment.of(loaded.configuration, mock_url=mock_url)
    paid = None if mock_url else PaidAnswers.of(loaded, runtime.root, max_usd=max_usd)
    return LoggedChat(loaded, environment, feedback, runtime, paid, judge_share=judge_share)
