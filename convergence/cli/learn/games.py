"""``games``: language games between models, and their value."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convergence import console
from convergence.cli import locations, options
from convergence.cli.locations import load_with
from convergence.cli.optimize import mock_server
from convergence_core.errors import RunNotFoundError

if TYPE_CHECKING:
    from convergence_core.games.round_records import GamesReport
    from tasks.games.reasoning_audits import StoredAudit
    from tasks.report.blocks import Block

app = options.command_group(
    "games", "Play language games between models, and see which of them help."
)
Seed = Annotated[
    int | None, typer.Option(min=0, help="Same seed, same plays. Overrides optimization.seed.")
]


@app.command("list")
def list_games(
    config: options.ConfigFile = options.CONFIG_FILE,
    assignments: options.Assignments = None,
    offline: options.Offline = False,
    _json: options.AsJson = False,
) -> None:
    """List the games of a configuration with their players, and check your own games.

    Calls no model. Lists real tasks whose audit is stored.
    """
    from tasks.games.reasoning_audits import stored_audit  # noqa: PLC0415 - as above
    from tasks.games.reasoning_tasks import PACKAGE, why_missing  # noqa: PLC0415 - as above
    from tasks.inputs.storage import store_path  # noqa: PLC0415 - as above
    from tasks.run.games_opener import listed_games  # noqa: PLC0415 - brings NumPy

    with mock_server(wanted=offline) as mock_url:
        loaded = load_with(config, assignments)
        games = listed_games(loaded, mock_url=mock_url)
    real = None if why_missing() else stored_audit(store_path(loaded))
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "game": lambda game: str(game["game"]),
        "feeds": lambda game: str(game["feeds"]),
        "grounded": lambda game: "yes" if game["grounded"] else "no",
        "replies a play, at most": lambda game: str(game["most_replies"]),
        "players": lambda game: ", ".join(
            f"{role}: {player}" for role, player in game["players"].items()
        ),
    }

    def show() -> None:
        console.show(console.table_of(games, columns, right=("replies a play, at most",)))
        for game in games:
            if game["off_reason"] is not None:
                console.answer(f"{game['game']} cannot be played here: {game['off_reason']}.")
        if real is None:
            console.answer(f"Real tasks: none. {why_missing()}")
        elif not real.is_whole:
            console.answer(
                f"Real tasks: not all generators of {PACKAGE} {real.version} are audited yet. "
                "`convergence games audit` audits them once."
            )
        else:
            n, known = len(real.admitted), len(real.audits)
            console.answer(
                f"Real tasks: {n} of {known} generators of {PACKAGE} {real.version} can be played. "
                "`convergence games audit` names them, and the rejected ones with the reason."
            )

    audit = None if real is None else {**_audit_row(real), "n_generators": real.n_generators}
    console.emit({"games": games, "real_tasks": audit}, show)


@app.command()
def run(  # noqa: PLR0917 - Typer's options
    config: options.ConfigFile = options.CONFIG_FILE,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds.")] = 1,
    seed: Seed = None,
    assignments: options.Assignments = None,
    offline: options.Offline = False,
    quiet: options.Quiet = False,
    _json: options.AsJson = False,
) -> None:
    """Play a round of language games, and report which games help.

    Spends at most the share `society.games.max_share_usd` of the budget. Flow `games` does the same
    every week. An interrupted round continues without paying a recorded reply again.
    """
    from tasks.run.games_opener import open_games_round, play_games  # noqa: PLC0415 - brings NumPy

    with mock_server(wanted=offline) as mock_url:
        loaded = load_with(config, assignments)
        tell = None if quiet or console.settings.json else lambda text: console.say(text, "dim")
        reports = []
        for _ in range(rounds):
            with open_games_round(loaded, seed=seed, mock_url=mock_url) as opened:
                reports.append(play_games(opened, tell))
    _emit(reports[-1])
    played = next((game.coin.game for game in reports[-1].games if game.n_played), None)
    if tell is not None and played is not None:
        console.say(f"\nIts plays: convergence games show --game {played}")
        console.say(
            "Another round: convergence games run. Data for trainers: convergence export games"
        )


@app.command()
def audit(
    generators: Annotated[
        list[str] | None,
        typer.Argument(metavar="GENERATOR", help="Names of generators. Default: all."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Items to try of each generator.")] = 3,
    again: Annotated[
        bool, typer.Option("--again", help="Also try generators whose audit is stored.")
    ] = False,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Try the task generators of reasoning-gym, and report which are rejected and why.

    Tries each once for the installed version, and stores the result.
    """
    from tasks.games.reasoning_audits import StoredAudit, audited  # noqa: PLC0415 - brings NumPy
    from tasks.games.reasoning_tasks import installed_version  # noqa: PLC0415 - as above

    path = locations.store_path(store, config)
    names = [name.replace("-", "_") for name in generators or ()]
    audits = dict(sorted(audited(path, names, n_seeds=seeds, again=again)))
    shown = StoredAudit(
        version=installed_version(),
        audits=audits,
        n_generators=len(audits),
    )
    console.emit(_audit_row(shown), lambda: _show_audit(shown))


def _audit_row(audit: "StoredAudit") -> dict[str, Any]:
    return {"version": audit.version, "admitted": audit.admitted, "rejected": audit.rejected}


def _show_audit(audit: "StoredAudit") -> None:
    if audit.rejected:
        rows = [(name.replace("_", "-"), reason) for name, reason in audit.rejected.items()]
        console.show(console.simple_table(("rejected", "because"), rows))
    from tasks.games.reasoning_tasks import PACKAGE  # noqa: PLC0415 - brings NumPy

    n, version = len(audit.admitted), audit.version
    console.answer(f"{PACKAGE} {version}: {n} of {len(audit.audits)} generators admitted.")
    if n:
        names = ", ".join(name.replace("_", "-") for name in audit.admitted)
        console.answer(f"They are played as reasoning-NAME: {names}.")


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="ROUND", help="Label of its run, or a system. Default: the latest."
        ),
    ] = None,
    game: Annotated[
        str | None, typer.Option("--game", metavar="ID", help="Also show plays of this game.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most plays to show.")] = 3,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Show a round of games: plays, cost, which games are kept and why."""
    opened = locations.open_store(store, config)
    from tasks.games.games_report import latest_round, report_of  # noqa: PLC0415 - brings NumPy
    from tasks.games.round_rows import plays_of_run  # noqa: PLC0415 - as above
    from tasks.report.games_section import play_blocks  # noqa: PLC0415 - as above

    try:
        record = latest_round(opened, name)
    except LookupError as error:
        raise RunNotFoundError(str(error.args[0])) from None
    plays = [] if game is None else plays_of_run(opened, record.run_id, game)[:limit]
    blocks = [block for play in plays for block in play_blocks(play)]
    _emit(report_of(opened, record), blocks, plays=[asdict(play) for play in plays])
    if game is not None and not plays:
        console.say(f"No play of {game!r} is in that round.")


def _emit(
    report: "GamesReport",
    more: "list[Block] | None" = None,
    *,
    plays: list[dict[str, Any]] | None = None,
) -> None:
    from tasks.report.games_section import game_sentence, games_blocks  # noqa: PLC0415 - brings NumPy

    def show() -> None:
        for block in [*games_blocks(report), *(more or [])]:
            console.show_block(block)

    why = {game.coin.game: game_sentence(game) for game in report.games}
    console.emit({"round": asdict(report), "why": why, "plays": plays or []}, show)
