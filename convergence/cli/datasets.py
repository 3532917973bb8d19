"""``export`` and ``import``: settings, test cases, answers, ratings, preferences."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from convergence import console
from convergence.cli import locations, options
from convergence.cli.learn import preferences
from convergence.cli.options import EXIT_NO, format_option, output_option
from convergence_core.errors import ConfigurationError

exporting = options.command_group("export", "Write datasets out of a store.")
importing = options.command_group("import", "Read files of other tools.")
exporting.command("preferences")(preferences.export_preferences)


@importing.command("promptfoo")
def import_promptfoo(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Configuration of promptfoo.")],
    output: Annotated[
        Path, output_option(help="Configuration to write; test cases go to the same folder.")
    ] = Path("optimization.yaml"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace both files.")] = False,
) -> None:
    """Convert a promptfoo configuration to `optimization.yaml` and test cases."""
    from convergence_core.config.source import yaml_text  # noqa: PLC0415 - with its only user
    from convergence_core.result.number_text import plural  # noqa: PLC0415 - as above
    from tasks.inputs.promptfoo import promptfoo_project  # noqa: PLC0415
    from tasks.store.layout import write_file  # noqa: PLC0415 - as above

    cases = output.with_name("cases.jsonl")
    for path in (output, cases):
        if path.is_dir() or (path.exists() and not overwrite):
            fix = "Name another folder, or add --overwrite."
            raise ConfigurationError.of("--output", "must be a new file", fix, value=str(path))
    try:
        project = promptfoo_project(file, cases.name)
    except (OSError, ValueError) as error:
        fix = "Name a configuration of promptfoo in YAML or JSON."
        raise ConfigurationError.of(str(file), str(error), fix) from error
    rows = (json.dumps(case, ensure_ascii=False) + "\n" for case in project.cases)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_file(cases, "".join(rows))
    write_file(output, yaml_text(project.configuration))
    console.say(f"Wrote {output}, and {plural(len(project.cases), 'test case')} to {cases}.")
    for feature, n in project.lost.most_common():
        console.say(f"Not carried, {n:,}: {feature}.")
    console.say(f"Next: convergence validate {output}")


@exporting.command("config")
def export_config(
    run: options.FinishedRun = None,
    form: Annotated[str, format_option(metavar="FORM", help="env or promptfoo.")] = "env",
    output: options.Output = None,
    store: options.Store = None,
    config: options.Config = None,
) -> None:
    """Write the recommended settings of a run for other programs."""
    from convergence.finished_runs import finished_run  # noqa: PLC0415 - with its only user
    from tasks.exports.run_winner import winner_of  # noqa: PLC0415 - as above
    from tasks.exports.winner_forms import WinnerForm, winner_text  # noqa: PLC0415 - as above
    from tasks.run.adoption import stored_result  # noqa: PLC0415 - as above

    options.check_format(form, [*WinnerForm])
    opened = locations.open_store(store, config)
    record = finished_run(opened, run)
    result = stored_result(record, opened.path)
    winner = winner_of(record, result, WinnerForm(form), config)
    if winner is None:
        console.say("The run recommends no settings.")
        raise typer.Exit(EXIT_NO)
    console.write(winner_text(winner, WinnerForm(form)), output)


@exporting.command("games")
def export_games(  # noqa: PLR0917 - options of a command
    form: Annotated[
        str,
        format_option(
            metavar="FORM",
            help="sft (winning moves), dpo (pairs) or grpo (prompts with a verifier).",
        ),
    ] = "sft",
    output: Annotated[
        Path | None, output_option(help="File of JSON lines. Default: games.jsonl.")
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(help="System of the rounds. Default: all but offline rounds."),
    ] = None,
    game: Annotated[
        str | None, typer.Option(metavar="ID", help="Write only plays of this game.")
    ] = None,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Write plays of language games as training data: winning moves, pairs or verifiable tasks."""
    from tasks.games.game_data import GameForm, game_rows, stored_plays  # noqa: PLC0415

    options.check_format(form, [*GameForm])
    plays = stored_plays(locations.open_store(store, config), system, game)
    rows = list(game_rows(plays, GameForm(form)))
    if not rows:
        console.say(
            f"None of {len(plays):,} plays gives a row of this format."
            if plays
            else "No play of a model is stored. Play with `convergence games run`; `--system NAME.offline` "
            "writes plays of the mock."
        )
        raise typer.Exit(EXIT_NO)
    _write(rows, output or Path("games.jsonl"), "rows")


JSON_LINES = "File of JSON lines."
Role = Annotated[str | None, typer.Option(help="Role of the answers. Default: all.")]


@exporting.command("interactions")
def export_interactions(  # noqa: PLR0917 - options of a command
    output: Annotated[Path, output_option(help=JSON_LINES)] = Path("interactions.jsonl"),
    role: Role = None,
    messages: Annotated[
        bool,
        typer.Option(
            "--messages", help="Write the whole prompt as messages, not the last message only."
        ),
    ] = False,
    training: Annotated[
        bool, typer.Option("--training", help="Add the reward that trains, and safety flags.")
    ] = False,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Write logged answers: timestamp, id, prompt, response, and reward (null without a rating)."""
    from tasks.store.feedback.answer_rewards import answer_rewards  # noqa: PLC0415 - brings SQLite
    from tasks.store.feedback.dataset import interaction_row, interaction_rows  # noqa: PLC0415

    with locations.open_feedback(store, config) as feedback:
        if training:
            rows = [
                interaction_row(feedback, answer, has_messages=messages)
                | {"training_reward": reward.training, "safety_flags": [*reward.flags]}
                for answer, reward in answer_rewards(feedback, role)
            ]
        else:
            rows = list(interaction_rows(feedback, role=role, has_messages=messages))
    _write(rows, output, "answers")


@exporting.command("ratings")
def export_ratings(
    output: Annotated[Path, output_option(help=JSON_LINES)] = Path("ratings.jsonl"),
    role: Role = None,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Write ratings: the last of each user for each answer."""
    from tasks.store.feedback.dataset import rating_rows  # noqa: PLC0415 - brings SQLite

    with locations.open_feedback(store, config) as feedback:
        rows = list(rating_rows(feedback, role=role))
    _write(rows, output, "ratings")


@importing.command("ratings")
def import_ratings(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON lines, as of `export interactions`.")
    ],
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Read answers and ratings; a repeated rating counts once."""
    from tasks.store.feedback.dataset import read_ratings  # noqa: PLC0415 - brings SQLite
    from tasks.store.feedback.feedback_store import FeedbackStore  # noqa: PLC0415 - as above

    with FeedbackStore(locations.store_path(store, config)) as feedback:
        try:
            report = read_ratings(feedback, file)
        except (OSError, ValueError) as error:
            fix = "Name a file of JSON lines."
            raise ConfigurationError.of(str(file), str(error), fix) from error
    head = f"Read {report.n_logged:,} answers and {report.n_rated:,} ratings"
    lines = [f"{head}; {report.n_known:,} ratings were known."]
    lines += [f"Left out {n:,}: {reason}." for reason, n in report.skipped.items()]
    console.emit(
        {
            "answers": report.n_logged,
            "ratings": report.n_rated,
            "known": report.n_known,
            "skipped": dict(report.skipped),
        },
        "\n".join(lines),
    )


def _write(rows: "list[dict[str, Any]]", output: Path, noun: str) -> None:
    from tasks.store.layout import write_file  # noqa: PLC0415 - with its only user

    if output.is_dir():
        fix = f"That is a folder; write e.g. `--output {noun}.jsonl`."
        raise ConfigurationError.of("--output", "must name a file", fix, value=str(output))
    write_file(output, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    console.emit(
        {"rows": len(rows), "file": str(output)}, f"Wrote {len(rows):,} {noun} to {output}."
    )
