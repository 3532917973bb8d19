"""``review``: test cases that bad ratings and games propose, decided by a person."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convergence import console
from convergence.cli import locations, options
from convergence_core.errors import ConfigurationError

if TYPE_CHECKING:
    from tasks.store.feedback.proposals import ProposedCase

_SHOWN = 200
"""Characters of a prompt and an answer in the list."""


def review(  # noqa: PLR0917 - Typer's options
    config: Annotated[Path, typer.Argument(help="Configuration whose cases they become.")] = Path(
        locations.CONFIG_NAME
    ),
    approve: Annotated[
        str | None, typer.Option(metavar="ID", help="Make this answer's prompt a test case.")
    ] = None,
    reject: Annotated[
        str | None, typer.Option(metavar="ID", help="Do not propose this answer again.")
    ] = None,
    expected: Annotated[
        str | None,
        typer.Option(
            help="The answer that would be right. Default: none; of a game, its reference's."
        ),
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(help="Field of the input that holds the prompt. Default: the only one."),
    ] = None,
    store: options.Store = None,
    as_json: options.AsJson = False,
) -> None:
    """List test cases proposed by ratings of 1 or 2, thumbs down, or games that broke an answer; decide on them.

    An approved one is appended to the file `evaluation.test_cases.approved`, and is in the next run.
    """
    from tasks.inputs.loader import load  # noqa: PLC0415 - brings pydantic
    from tasks.run.case_review import (  # noqa: PLC0415 - as above
        approve_case,
        proposed_for,
        reject_case,
    )
    from tasks.store.feedback.feedback_store import FeedbackStore  # noqa: PLC0415 - brings SQLite

    if approve is not None and reject is not None:
        rule, fix = "must not be given beside --approve", "Decide about one answer at a time."
        raise ConfigurationError.of("--reject", rule, fix)
    loaded = load(config)
    with FeedbackStore(locations.store_path(store, config)) as feedback:
        if approve is not None:
            done = approve_case(loaded, feedback, approve, expected=expected, field=field)
        elif reject is not None:
            done = reject_case(loaded, feedback, reject)
        else:
            _list(proposed_for(loaded, feedback), as_json=as_json)
            return
    if as_json:
        console.answer_json({"decision": done.decision, "case_id": done.case_id})
    else:
        console.say(done.sentence)


def _list(proposed: "list[ProposedCase]", *, as_json: bool) -> None:
    if as_json:
        console.answer_json(
            {
                "proposed": [
                    {
                        "interaction_id": one.interaction.interaction_id,
                        "prompt": one.prompt,
                        "response": one.interaction.response,
                        "marks": one.marks,
                    }
                    for one in proposed
                ]
            }
        )
        return
    for one in proposed:
        console.answer(f"{one.interaction.interaction_id}  {_short(one.marks)}")
        console.answer(f"  asked:    {_short(one.prompt)}")
        console.answer(f"  answered: {_short(one.interaction.response)}")
    if proposed:
        n = len(proposed)
        console.say(
            f"{n} test {'case is' if n == 1 else 'cases are'} proposed. `convergence review --approve ID "
            "--expected ANSWER` or `--reject ID` decides."
        )
    else:
        console.say(
            "No test case is proposed: no answer was rated 1, 2 or thumbs down, and no game broke one."
        )


def _short(text: str) -> str:
    from tasks.secrets.process_redaction import redacted_text  # noqa: PLC0415 - as above
    from tasks.secrets.redaction import one_line  # noqa: PLC0415 - as above

    return one_line(text, _SHOWN, redacted_text)
