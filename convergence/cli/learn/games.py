"""``games``: language games between models, and what they were worth."""

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

app = typer.Typer(
    name="games",
    no_args_is_help=True,
    help="Play language games between models, and see which of them help.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
Seed = Annotated[
    int | None, typer.Option(min=0, help="Same seed, same plays. Overrides optimization.seed.")
]


@app.command("list")
def list_games(
    config: options.ConfigFile = options.CONFIG_FILE,
    assignments: options.Assignments = None,
    offline: options.Offline = False,
    as_json: options.AsJson = False,
) -> None:
    """List the games of a configuration with their players; games of one's own are checked.

    Nothing is asked of a model. Real tasks are listed as far as their audit is stored.
    """
    from tasks.games.reasoning_audits import stored_audit  # noqa: PLC0415 - as above
    from tasks.games.reasoning_tasks import PACKAGE, why_missing  # noqa: PLC0415 - as above
    from tasks.inputs.storage import store_path  # noqa: PLC0415 - as above
    from tasks.run.games_opener import listed_games  # noqa: PLC0415 - brings NumPy

    with mock_server(wanted=offline) as mock_url:
        loaded = load_with(config, assignments)
        found = listed_games(loaded, mock_url=mock_url)
    real = None if why_missing() else stored_audit(store_path(loaded))
    if as_json:
        told = None if real is None else {**_told(real), "n_generators": real.n_generators}
        console.answer_json({"games": found, "real_tasks": told})
        return
    columns = {
        "game": lambda one: str(one["game"]),
        "feeds": lambda one: str(one["feeds"]),
        "grounded": lambda one: "yes" if one["grounded"] else "no",
        "replies a play, at most": lambda one: str(one["most_replies"]),
        "players": lambda one: ", ".join(f"{role}: {who}" for role, who in one["players"].items()),
    }
    console.show(console.table_of(found, columns, right=("replies a play, at most",)))
    for one in found:
        if one["off_reason"] is not None:
            console.answer(f"{one['game']} cannot be played here: {one['off_reason']}.")
    if real is None:
        console.answer(f"Real tasks: none. {why_missing()}")
    elif not real.is_whole:
        console.answer(
            f"Real tasks: the generators of {PACKAGE} {real.version} were not all audited yet. "
            "`convergence games audit` does it once."
        )
    else:
        n, known = len(real.admitted), len(real.found)
        console.answer(
            f"Real tasks: {n} of {known} generators of {PACKAGE} {real.version} can be played. "
            "`convergence games audit` names them, and the rejected ones with the reason."
        )


@app.command()
def run(  # noqa: PLR0917 - Typer's options
    config: options.ConfigFile = options.CONFIG_FILE,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, one after the other.")] = 1,
    seed: Seed = None,
    assignments: options.Assignments = None,
    offline: options.Offline = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Play a round of language games: look at the held-out cases, toss coins, play, say what it was worth.

    Within the share of the budget that `society.games.max_share_usd` allows. What flow `games` does by
    week; a round that was interrupted goes on, and no recorded reply is paid again.
    """
    from tasks.run.games_opener import open_games_round, play_games  # noqa: PLC0415 - brings NumPy

    with mock_server(wanted=offline) as mock_url:
        loaded = load_with(config, assignments)
        tell = None if quiet or as_json else lambda text: console.say(text, "dim")
        reports = []
        for _ in range(rounds):
            with open_games_round(loaded, seed=seed, mock_url=mock_url) as opened:
                reports.append(play_games(opened, tell))
    _answer(reports[-1], as_json=as_json)
    played = next((one.coin.game for one in reports[-1].games if one.n_played), None)
    if tell is not None and played is not None:
        console.say(f"\nIts plays: convergence games show --game {played}")
        console.say(
            "Another round: convergence games run. Data for trainers: convergence export games"
        )


@app.command()
def audit(  # noqa: PLR0917 - Typer's options
    generators: Annotated[
        list[str] | None,
        typer.Argument(metavar="[GENERATOR]...", help="Names of generators. Default: all."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Items tried of each generator.")] = 3,
    again: Annotated[
        bool, typer.Option("--again", help="Try those as well whose audit is stored.")
    ] = False,
    store: options.Store = None,
    config: options.Config = None,
    as_json: options.AsJson = False,
) -> None:
    """Try the task generators of reasoning-gym, and say which are rejected and why.

    Each is tried once for the installed version; what was found is stored.
    """
    from tasks.games.reasoning_audits import StoredAudit, audited  # noqa: PLC0415 - brings NumPy
    from tasks.games.reasoning_tasks import installed_version  # noqa: PLC0415 - as above

    path = locations.store_path(store, config)
    names = [name.replace("-", "_") for name in generators or ()]
    found = {one.generator: one for one in audited(path, names, n_seeds=seeds, again=again)}
    shown = StoredAudit(
        version=installed_version(), found=dict(sorted(found.items())), n_generators=len(found)
    )
    if as_json:
        console.answer_json(_told(shown))
    else:
        _show_audit(shown)


def _told(found: "StoredAudit") -> dict[str, Any]:
    return {"version": found.version, "admitted": found.admitted, "rejected": found.rejected}


def _show_audit(found: "StoredAudit") -> None:
    if found.rejected:
        columns = {
            "rejected": lambda one: one[0].replace("_", "-"),
            "because": lambda one: one[1],
        }
        console.show(console.table_of([*found.rejected.items()], columns))
    from tasks.games.reasoning_tasks import PACKAGE  # noqa: PLC0415 - brings NumPy

    n, version = len(found.admitted), found.version
    console.answer(f"{PACKAGE} {version}: {n} of {len(found.found)} generators admitted.")
    if n:
        names = ", ".join(name.replace("_", "-") for name in found.admitted)
        console.answer(f"They are played as reasoning-NAME: {names}.")


@app.command()
def show(  # noqa: PLR0917 - Typer's options
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="ROUND", help="Label of its run, or a system. Default: the latest."
        ),
    ] = None,
    game: Annotated[
        str | None, typer.Option("--game", metavar="ID", help="Show plays of this game as well.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Plays shown at most.")] = 3,
    store: options.Store = None,
    config: options.Config = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a round of games: what was played, what it cost, which games are kept and why."""
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
    _answer(report_of(opened, record), blocks, as_json=as_json, plays=[asdict(p) for p in plays])
    if game is not None and not plays:
        console.say(f"No play of {game!r} is in that round.")


def _answer(
    report: "GamesReport",
    more: "list[Block] | None" = None,
    *,
    as_json: bool,
    plays: list[dict[str, Any]] | None = None,
) -> None:
    from tasks.report.games_section import game_sentence, games_blocks  # noqa: PLC0415 - brings NumPy

    if as_json:
        sentences = {one.coin.game: game_sentence(one, report.n_measured) for one in report.games}
        console.answer_json({"round": asdict(report), "why": sentences, "plays": plays or []})
        return
    for block in [*games_blocks(report), *(more or [])]:
        console.show_block(block)
