"""``optimize`` and ``resume``: runs of an optimization."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convergence import console
from convergence.cli import locations, options
from convergence.cli.estimate import emit_estimate
from convergence.cli.locations import load_with
from convergence_core.errors import RunInterruptedError
from convergence_core.events import Listener

if TYPE_CHECKING:
    from convergence_core.result import RunResult
    from tasks.run.run import Run

EXIT_ERROR = 1
"""Exit code if no candidate can be recommended."""
EXIT_BUDGET = 3


def optimize(  # noqa: PLR0917 - Typer's options
    config: options.ConfigFile = options.CONFIG_FILE,
    offline: options.Offline = False,
    max_usd: options.MaxUsd = None,
    max_calls: options.MaxCalls = None,
    max_tokens: options.MaxTokens = None,
    max_minutes: options.MaxMinutes = None,
    generations: options.Generations = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Same seed, same run. Overrides optimization.seed.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Estimate the cost without making a call, then exit."),
    ] = False,
    assignments: options.Assignments = None,
    output: Annotated[
        Path | None,
        options.output_option(help="Folder of the result files. Overrides output.save_path."),
    ] = None,
    quiet: options.Quiet = False,
    _json: options.AsJson = False,
) -> None:
    """Search for better settings, and test them on held-out cases.

    Ctrl-C stops cleanly and keeps all paid answers; `convergence resume` continues. Exit code 3: budget
    reached; the result uses what was learned so far.
    """
    budget = limits_of(max_usd, max_calls, max_tokens, max_minutes)
    where = locations.resume_options(None, config, offline=offline)
    loaded = load_with(config, assignments)
    if dry_run:
        emit_estimate(loaded, generations=generations, budget=budget)
        return

    def prepare(listener: Listener | None, mock_url: str | None) -> "Run":
        from convergence_core.config.evaluation_rules import judge_note  # noqa: PLC0415 - as below
        from convergence_core.config.rules import without_effect  # noqa: PLC0415 - as below
        from tasks.run.opener import prepare_run  # noqa: PLC0415 - brings DuckDB and clients

        for sentence in without_effect(loaded.configuration):
            console.say(f"Note: {sentence}.", style="yellow")
        if judge := judge_note(loaded.configuration, is_offline=mock_url is not None):
            console.say(f"judge: {judge}")
        return prepare_run(
            loaded,
            seed=seed,
            generations=generations,
            budget=budget,
            save_path=None if output is None else str(output.resolve()),
            mock_url=mock_url,
            on_event=listener,
        )

    _run(prepare, where=where, offline=offline, quiet=quiet)


def resume(  # noqa: PLR0917 - as above
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="Label or id, or an unambiguous part. Default: the latest run that can continue.",
        ),
    ] = None,
    max_usd: options.MaxUsd = None,
    max_calls: options.MaxCalls = None,
    max_tokens: options.MaxTokens = None,
    max_minutes: options.MaxMinutes = None,
    retry_errors: Annotated[
        bool,
        typer.Option(
            "--retry-errors",
            help="Repeat evaluations without a reward; after a finished run, in a new run.",
        ),
    ] = False,
    offline: options.Offline = False,
    store: options.Store = None,
    config: options.Config = None,
    quiet: options.Quiet = False,
    _json: options.AsJson = False,
) -> None:
    """Continue a run that was stopped, killed, or ended by a limit you now raise.

    Repeats no finished call. A finished run stays unchanged; a new run continues from it.
    """
    budget = limits_of(max_usd, max_calls, max_tokens, max_minutes)

    def prepare(listener: Listener | None, mock_url: str | None) -> "Run":
        path = locations.open_store(store, config).path
        from tasks.run.opener import edited_keys, resume_run  # noqa: PLC0415 - brings DuckDB and clients

        resumed = resume_run(
            path,
            run,
            retry_missing=retry_errors,
            budget=budget,
            mock_url=mock_url,
            on_event=listener,
        )
        if edited := edited_keys(resumed.loaded):
            file = resumed.loaded.config_path
            keys = ", ".join(f"`{key}`" for key in edited)
            console.say(
                f"Note: {file} differs in {keys} from what {resumed.label} began with, and the run continues as "
                "it began. For the file as it is now: `convergence optimize`.",
                style="yellow",
            )
        return resumed

    where = locations.resume_options(store, config, offline=offline)
    _run(prepare, where=where, offline=offline, quiet=quiet)


def limits_of(*limits: float | None) -> dict[str, float | None]:
    """Return limits by key: dollars, calls, tokens, minutes."""
    return dict(zip(("max_usd", "max_calls", "max_tokens", "max_minutes"), limits, strict=True))


@contextlib.contextmanager
def mock_server(*, wanted: bool) -> Iterator[str | None]:
    """Serve the built-in mock if ``wanted``, and yield its URL."""
    if not wanted:
        yield None
        return
    from tasks.mock.mock_server import MockServer  # noqa: PLC0415 - brings a web server
    from tasks.mock.options import MockOptions  # noqa: PLC0415 - as above

    with MockServer(MockOptions(varies=True)) as server:
        yield server.url


def _run(
    prepare: Callable[[Listener | None, str | None], "Run"],
    *,
    where: str,
    offline: bool,
    quiet: bool,
) -> None:
    """Prepare a run, execute its flow, and show progress and result."""
    from convergence.cli.interrupts import Terminated, stops_cleanly  # noqa: PLC0415 - only for runs
    from convergence.optimize.execution import execute  # noqa: PLC0415 - as above
    from convergence.optimize.progress import ProgressDisplay, open_screen  # noqa: PLC0415 - brings Rich
    from tasks.prefect_support.temporary_server import stop_server  # noqa: PLC0415 - as above

    quiet = quiet or console.settings.json
    with (
        ProgressDisplay(open_screen(quiet=quiet)) as progress,
        mock_server(wanted=offline) as mock_url,
    ):
        # A quiet run has no listener.
        running = prepare(None if quiet else progress, mock_url)
        progress.waiting("starting Prefect's server (some seconds)")
        advice = f"Continue with: convergence resume {running.label}{where}"
        try:
            with stops_cleanly(running, progress, advice):
                result = execute(running, verbose=console.settings.debug)
        except KeyboardInterrupt:
            raise RunInterruptedError("interrupted before the first call.") from None
        except Terminated as ended:
            if running.has_begun and running.record.status != "done":
                ended.farewell = advice
            stop_server()
            raise
        except RunInterruptedError:
            if where:  # otherwise the error's own advice suffices
                progress.say(advice)
            raise
    from convergence_core.result import result_json  # noqa: PLC0415 - with its only user

    console.emit(result_json(result), lambda: show(result))
    code = exit_code_of(result)
    if code:
        raise typer.Exit(code)


def show(result: "RunResult") -> None:
    """Print the verdict, the recommended settings next to the defaults, and where to read more."""
    from tasks.report import phrases  # noqa: PLC0415 - with its only user
    from tasks.report.document import summary  # noqa: PLC0415 - as above

    price = "" if result.cost_usd is None else f", {phrases.spend(result)}"
    console.answer(
        f"\n{result.label}: {phrases.heading(result)}{price}.{phrases.ending(result)}",
        style="bold",
    )
    for block in summary(result):
        console.show_block(block)
    names = [name for name in ("report.html", "report.md") if name in result.files]
    path = f"{console.short_path(Path(result.files[names[0]]))}, or " if names else ""
    console.answer(f"Report: {path}`convergence report {result.label}`; pages: `convergence ui`")


def exit_code_of(result: "RunResult") -> int:
    """Return 3 if a limit of the budget ended the run, 1 if it recommends no candidate."""
    if result.status == "budget":
        return EXIT_BUDGET
    return EXIT_ERROR if result.winner is None else 0
