"""``games``: language games between models, and what they were worth."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convergence.cli import console, locations, options
from convergence.cli.assignments import load_with
from convergence.cli.optimize import mock_server
from convergence_core.errors import ConfigurationError, RunNotFoundError

if TYPE_CHECKING:
    from convergence_core.games.round_records import GamesReport
    from tasks.games.reasoning_audits import StoredAudit
    from tasks.report.blocks import Block
    from tasks.run.game_proposals import StoredProposal

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
    from tasks.games.sealed_openings import opening_of  # noqa: PLC0415 - as above
    from tasks.inputs.storage import store_path  # noqa: PLC0415 - as above
    from tasks.report.games_section import sealed_sentence  # noqa: PLC0415 - as above
    from tasks.run.games_opener import listed_games  # noqa: PLC0415 - brings NumPy

    with mock_server(wanted=offline) as mock_url:
        loaded = load_with(config, assignments)
        found = listed_games(loaded, mock_url=mock_url)
        opened = opening_of(loaded, mock_url=mock_url)
    real = None if why_missing() else stored_audit(store_path(loaded))
    if as_json:
        told = None if real is None else {**_told(real), "n_generators": real.n_generators}
        sealed = {
            "n": len(loaded.sealed_cases),
            "opened": None if opened is None else asdict(opened),
        }
        console.answer_json({"games": found, "real_tasks": told, "sealed": sealed})
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
    if sealed_text := sealed_sentence(len(loaded.sealed_cases), opened):
        console.answer(sealed_text)


@app.command("open")
def open_cases(
    config: options.ConfigFile = options.CONFIG_FILE,
    assignments: options.Assignments = None,
    yes: options.Yes = False,
    offline: options.Offline = False,
    as_json: options.AsJson = False,
) -> None:
    """Open the sealed held-out cases, once, at the end: the incumbent against where the rounds began.

    Both are asked them within `budget`. That ends the rounds, for what they say counts once. What was interrupted
    goes on with the same command.
    """
    from tasks.report.games_section import opened_sentence  # noqa: PLC0415 - as above
    from tasks.run.sealed_set import open_sealed, plan_opening  # noqa: PLC0415 - brings NumPy

    with mock_server(wanted=offline) as mock_url:
        loaded = load_with(config, assignments)
        plan = plan_opening(loaded, mock_url=mock_url)
        console.confirm(
            f"Ask {len(plan.case_ids)} sealed cases of two configurations? It can be done once, and ends the rounds.",
            yes=yes,
        )
        found = open_sealed(loaded, mock_url=mock_url)
    if as_json:
        console.answer_json({"opened": asdict(found), "left_out": list(plan.seen)})
        return
    console.answer(opened_sentence(found))
    if plan.seen:
        n = len(plan.seen)
        console.answer(
            f"{n} left out, for they were asked since the rounds began: {', '.join(plan.seen[:5])}."
        )


@app.command()
def propose(
    config: options.ConfigFile = options.CONFIG_FILE,
    n: Annotated[int, typer.Option("--n", min=1, max=100, help="Proposals, one a call.")] = 1,
    assignments: options.Assignments = None,
    offline: options.Offline = False,
    as_json: options.AsJson = False,
) -> None:
    """Ask the `llm` for new games; they are stored as text, and nothing of them is run.

    Within the share of the budget of one round. What is no game is stored with the reason. You decide by
    `convergence games proposals`. Exit code 100: no proposal can be decided about.
    """
    from tasks.run.game_proposals import propose_games  # noqa: PLC0415 - brings NumPy

    with mock_server(wanted=offline) as mock_url:
        found, why = propose_games(load_with(config, assignments), n, mock_url=mock_url)
    readable = [one for one in found if not one.proposal.reason]
    if as_json:
        console.answer_json({"proposals": [_proposal(one) for one in found], "why_ended": why})
    else:
        _show_proposals(found)
        if readable:
            where = " --offline" if offline else ""
            console.say(f"Read one: convergence games proposals --show ID{where}")
    if why is not None and not as_json:
        console.say(f"{len(found)} of {n} were asked for: {why}")
    if not readable:
        raise typer.Exit(options.EXIT_NO)


@app.command()
def proposals(  # noqa: PLR0917 - Typer's options
    config: options.ConfigFile = options.CONFIG_FILE,
    show_id: Annotated[
        str | None, typer.Option("--show", metavar="ID", help="Print its text.")
    ] = None,
    approve: Annotated[
        str | None, typer.Option(metavar="ID", help="Write it to the file --output.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="New file of an approved game.")
    ] = None,
    reject: Annotated[str | None, typer.Option(metavar="ID", help="Do not list it again.")] = None,
    store: options.Store = None,
    offline: options.Offline = False,
    as_json: options.AsJson = False,
) -> None:
    """List games that a model proposed and nobody decided about; read one, approve or reject it.

    An approved one is a file of yours from then on; neither listing nor approving runs anything of it.
    """
    from tasks.inputs.loader import load  # noqa: PLC0415 - brings pydantic
    from tasks.run import game_proposals  # noqa: PLC0415 - brings NumPy
    from tasks.store.feedback.feedback_store import FeedbackStore  # noqa: PLC0415 - brings SQLite

    _check_decision(show_id, approve, reject, output)
    loaded = load(config)
    with (
        mock_server(wanted=offline) as mock_url,
        FeedbackStore(locations.store_path(store, config)) as feedback,
    ):
        if approve is not None and output is not None:
            done = game_proposals.approve_game(
                loaded, feedback, approve, output, mock_url=mock_url
            )
        elif reject is not None:
            done = game_proposals.reject_game(loaded, feedback, reject, mock_url=mock_url)
        else:
            found = game_proposals.waiting(loaded, feedback, mock_url=mock_url)
            _list_proposals(found, show_id, as_json=as_json)
            return
    one, decision = done.proposal, "rejected" if approve is None else "approved"
    if as_json:
        console.answer_json(
            {"decision": decision, "proposal_id": one.proposal_id, "game": one.game}
        )
    elif output is None or approve is None:
        console.say(f"{one.game} is not proposed again.")
    else:
        console.say(
            f"Wrote {output}. Nothing of it was run: read it. To play it, write in the configuration"
        )
        console.answer(
            f'society:\n  games:\n    games:\n      {one.game}: {{file: "{output.as_posix()}:{one.class_name}"}}'
        )


def _check_decision(*given: object) -> None:
    *what, output = given
    if sum(one is not None for one in what) > 1:
        rule, fix = "must stand alone", "Read, approve or reject one game at a time."
        raise ConfigurationError.of("--show, --approve, --reject", rule, fix)
    if (output is None) != (what[1] is None):
        rule, fix = "must be given beside --approve", "Write `--approve ID --output FILE.py`."
        raise ConfigurationError.of("--output", rule, fix)


def _proposal(one: "StoredProposal") -> dict[str, Any]:
    return {
        "proposal_id": one.proposal.proposal_id,
        **{k: v for k, v in asdict(one.proposal).items() if k != "text"},
        "text": one.proposal.text,
        "model": one.model,
        "cost_usd": one.cost_usd,
    }


def _show_proposals(found: "Sequence[StoredProposal]") -> None:
    for one in found:
        if one.proposal.reason:
            console.answer(f"{one.model} proposed no game: {one.proposal.reason}.")
        else:
            console.answer(
                f"{one.proposal.proposal_id}  {one.proposal.game}: {one.proposal.purpose}"
            )


def _list_proposals(
    found: "Sequence[StoredProposal]", show_id: str | None, *, as_json: bool
) -> None:
    from tasks.run.game_proposals import no_such_proposal  # noqa: PLC0415 - brings NumPy

    shown = [one for one in found if show_id in (None, one.proposal.proposal_id)]
    if show_id is not None and not shown:
        raise no_such_proposal(show_id)
    if as_json:
        console.answer_json({"proposals": [_proposal(one) for one in shown]})
    elif show_id is not None:
        console.answer(shown[0].proposal.text)
    else:
        _show_proposals(shown)
        if shown:
            console.say(
                "`convergence games proposals --show ID` prints one, `--approve ID --output FILE.py` writes it to a "
                "file, `--reject ID` lists it no more."
            )
        else:
            console.say("No game is proposed. `convergence games propose` asks a model for one.")


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
