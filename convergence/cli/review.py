"""``review``: decisions on test cases that bad ratings and games propose."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convergence import console
from convergence.cli import locations, options
from convergence_core.errors import ConfigurationError

if TYPE_CHECKING:
    from tasks.store.feedback.proposals import ProposedCase

_SHOWN = 200
"""Maximum characters of a prompt and an answer in the list."""


def review(  # noqa: PLR0917 - Typer's options
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="Configuration that gets the cases.")
    ] = Path(locations.CONFIG_NAME),
    approve: Annotated[
        str | None, typer.Option(metavar="ID", help="Make this answer's prompt a test case.")
    ] = None,
    reject: Annotated[
        str | None, typer.Option(metavar="ID", help="Do not propose this answer again.")
    ] = None,
    expected: Annotated[
        str | None,
        typer.Option(help="The right answer. Default: none; for a game, the reference's."),
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(help="Input field that holds the prompt. Default: the only field."),
    ] = None,
    store: options.Store = None,
    _json: options.AsJson = False,
) -> None:
    """List and decide on test cases that bad ratings and games propose.

    Bad ratings are 1, 2 and thumbs down. Approving a case appends it to the file
    `evaluation.test_cases.approved`; the next run uses it.
    """
    from tasks.inputs.loader import load  # noqa: PLC0415 - brings pydantic
    from tasks.run.case_review import approve_case, proposed_for, reject_case  # noqa: PLC0415 - as above
    from tasks.store.feedback.feedback_store import FeedbackStore  # noqa: PLC0415 - brings SQLite

    if approve is not None and reject is not None:
        rule, fix = "must not come with --approve", "Decide on one answer at a time."
        raise ConfigurationError.of("--reject", rule, fix)
    loaded = load(config)
    with FeedbackStore(locations.store_path(store, config)) as feedback:
        if approve is not None:
            case_id, sentence = approve_case(
                loaded, feedback, approve, expected=expected, field=field
            )
        elif reject is not None:
            case_id, sentence = reject_case(loaded, feedback, reject)
        else:
            cases = proposed_for(loaded, feedback)
            console.emit({"proposed": [_row(case) for case in cases]}, lambda: _list(cases))
            return
    decision = "rejected" if approve is None else "approved"
    console.emit({"decision": decision, "case_id": case_id}, sentence)


def _row(case: "ProposedCase") -> dict[str, str]:
    return {
        "interaction_id": case.interaction.interaction_id,
        "prompt": case.prompt,
        "response": case.interaction.response,
        "marks": case.marks,
    }


def _list(proposed: "list[ProposedCase]") -> None:
    for case in proposed:
        console.answer(f"{case.interaction.interaction_id}  {_short(case.marks)}")
        console.answer(f"  asked:    {_short(case.prompt)}")
        console.answer(f"  answered: {_short(case.interaction.response)}")
    if proposed:
        n = len(proposed)
        console.say(
            f"{n} proposed test case{'' if n == 1 else 's'}. Decide with `convergence review --approve ID "
            "--expected ANSWER` or `--reject ID`."
        )
    else:
        console.say(
            "No proposed test case: no answer is rated 1, 2 or thumbs down, and no game broke one."
        )


def _short(text: str) -> str:
    from tasks.secrets.process_redaction import redacted_text  # noqa: PLC0415 - as above
    from tasks.secrets.redaction import one_line  # noqa: PLC0415 - as above

    return one_line(text, _SHOWN, redacted_text)
