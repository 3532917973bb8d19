"""``review``: test cases that bad ratings propose, decided by a person."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convergence.cli import console, locations, options
from convergence_core.errors import ConfigurationError, InteractionNotFoundError

if TYPE_CHECKING:
    from convergence_core.records import Json
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
        str | None, typer.Option(help="The answer that would be right. Default: none.")
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(help="Field of the input that holds the prompt. Default: the only one."),
    ] = None,
    store: options.Store = None,
    as_json: options.AsJson = False,
) -> None:
    """List test cases that people propose by ratings of 1 or 2 or thumbs down; approve or reject them.

    An approved one is appended to the file `evaluation.test_cases.approved`, and is in the next run.
    """
    from tasks.inputs.approved_cases import append_case, input_of  # noqa: PLC0415 - brings pydantic
    from tasks.inputs.loader import load  # noqa: PLC0415 - as above
    from tasks.store.feedback.feedback_store import FeedbackStore  # noqa: PLC0415 - brings SQLite
    from tasks.store.feedback.proposals import proposed_cases, save_review  # noqa: PLC0415 - as above

    if approve is not None and reject is not None:
        rule, fix = "must not be given beside --approve", "Decide about one answer at a time."
        raise ConfigurationError.of("--reject", rule, fix)
    loaded = load(config)
    system = loaded.configuration.api.name
    with FeedbackStore(locations.store_path(store, config)) as feedback:
        proposed = proposed_cases(feedback, system)
        if approve is not None:
            one = _found(proposed, approve)
            case: dict[str, Json] = {
                "id": one.case_id,
                "input": input_of(one.prompt, loaded.cases, field),
                "tags": ["feedback"],
                "description": one.marks,
            }
            if expected is not None:
                case["expected"] = expected
            file = append_case(loaded, case)
            save_review(feedback, one.interaction.interaction_id, "approved", one.case_id)
            _answer(as_json, "approved", one, f"{one.case_id} is in {file} and in the next run.")
        elif reject is not None:
            one = _found(proposed, reject)
            save_review(feedback, one.interaction.interaction_id, "rejected")
            _answer(as_json, "rejected", one, f"{one.case_id} is not proposed again.")
        else:
            _list(proposed, as_json=as_json)


def _found(proposed: "list[ProposedCase]", name: str) -> "ProposedCase":
    for one in proposed:
        if one.interaction.interaction_id == name:
            return one
    raise InteractionNotFoundError(
        f"an answer that is proposed must be named, but got {name[:200]!r}. "
        "`convergence review` lists them."
    )


def _answer(as_json: bool, decision: str, one: "ProposedCase", sentence: str) -> None:
    if as_json:
        console.answer_json({"decision": decision, "case_id": one.case_id})
    else:
        console.say(sentence)


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
        console.say("No test case is proposed: no answer was rated 1, 2 or thumbs down.")


def _short(text: str) -> str:
    from tasks.secrets.process_redaction import redacted_text  # noqa: PLC0415 - as above
    from tasks.secrets.redaction import one_line  # noqa: PLC0415 - as above

    return one_line(text, _SHOWN, redacted_text)
