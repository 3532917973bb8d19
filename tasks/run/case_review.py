"""Review of proposed test cases: approval into a file, or rejection."""

from dataclasses import dataclass

from convergence_core.errors import InteractionNotFoundError
from convergence_core.records import Json
from tasks.inputs.approved_cases import append_case, input_of
from tasks.inputs.cases import GAMES_TAG
from tasks.inputs.loader import Loaded
from tasks.inputs.storage import store_path
from tasks.run.hard_cases import hard_cases
from tasks.store import ParquetStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.proposals import (
    ProposedCase,
    ReviewDecision,
    proposed_cases,
    reviewed,
    save_review,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedCase:
    """What was decided about a proposed test case."""

    decision: ReviewDecision
    case_id: str
    sentence: str
    """What becomes of it."""


def proposed_for(loaded: Loaded, feedback: FeedbackStore) -> list[ProposedCase]:
    """Return the test cases that are proposed for a configuration: by ratings, then by games, oldest first."""
    name = loaded.configuration.api.name
    found = proposed_cases(feedback, name)
    path = store_path(loaded)
    if not (path / "store.json").is_file():
        return found
    return [*found, *hard_cases(ParquetStore(path), name, reviewed(feedback))]


def approve_case(
    loaded: Loaded,
    feedback: FeedbackStore,
    interaction_id: str,
    *,
    expected: str | None = None,
    field: str | None = None,
) -> ReviewedCase:
    """Make a proposed answer's prompt a test case, durably.

    Args:
        loaded: whose file of approved cases it is appended to.
        feedback: of its store.
        interaction_id: the answer.
        expected: the answer that would be right; ``None``: that of a game's reference, else the case has
            none.
        field: of the input that holds the prompt; ``None``: the only one.

    Raises:
        ConfigurationError: it names no such file, or would be refused with the case.
        InteractionNotFoundError: the answer is not proposed.
    """
    one = _found(loaded, feedback, interaction_id)
    case: dict[str, Json] = {
        "id": one.case_id,
        "input": input_of(one.prompt, loaded.cases, field),
        "tags": [GAMES_TAG if one.failed else "feedback"],
        "description": one.marks,
    }
    if expected is not None or one.right is not None:
        case["expected"] = one.right if expected is None else expected
    file = append_case(loaded, case)
    save_review(feedback, interaction_id, "approved", one.case_id)
    return ReviewedCase(
        decision="approved",
        case_id=one.case_id,
        sentence=f"{one.case_id} is in {file} and in the next run.",
    )


def reject_case(loaded: Loaded, feedback: FeedbackStore, interaction_id: str) -> ReviewedCase:
    """Decide that an answer is not proposed again, durably.

    Raises:
        InteractionNotFoundError: the answer is not proposed.
    """
    one = _found(loaded, feedback, interaction_id)
    save_review(feedback, interaction_id, "rejected")
    return ReviewedCase(
        decision="rejected",
        case_id=one.case_id,
        sentence=f"{one.case_id} is not proposed again.",
    )


def _found(loaded: Loaded, feedback: FeedbackStore, name: str) -> ProposedCase:
    for one in proposed_for(loaded, feedback):
        if one.interaction.interaction_id == name:
            return one
    raise InteractionNotFoundError(
        f"an answer that is proposed must be named, but got {name[:200]!r}. "
        "`convergence review` lists them."
    )
