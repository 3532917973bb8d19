"""Review page: test cases proposed by ratings and games, and past decisions."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from convergence_core.errors import QueryError
from convergence_core.records import Case
from tasks.inputs.loader import Loaded, load
from tasks.pages.conversations import LONGEST
from tasks.pages.source import Page, PageSource, line_of, time_of
from tasks.pages.writes import check_confirmed
from tasks.run.case_review import approve_case, proposed_for, reject_case
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import shortened
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.proposals import ProposedCase

MOST: Final = 100
"""Maximum proposed cases, and maximum decisions."""
NO_CONFIGURATION: Final = (
    "Cases are approved into the file of a configuration: start the pages in its folder, or name it with "
    "`--config optimization.yaml`."
)
NO_FILE: Final = (
    "The configuration names no file for approved cases: add e.g. `approved: approved_cases.jsonl` below "
    "`evaluation.test_cases`."
)
_DECIDED = (
    "SELECT interaction_id, decision, case_id, reviewed_us FROM case_reviews "
    "ORDER BY reviewed_us DESC LIMIT ?"
)


def review(source: PageSource) -> Page:
    """Return the undecided proposals, oldest first, and past decisions.

    Raises:
        ConfigurationError: the configuration is invalid.
    """
    feedback = source.feedback()
    loaded = None if source.config is None else load(source.config)
    proposed = [] if feedback is None or loaded is None else proposed_for(loaded, feedback)
    return {
        "why_not": _why_not(loaded),
        "system": None if loaded is None else line_of(loaded.configuration.api.name),
        "fields": [] if loaded is None else _fields(loaded.cases),
        "n_proposed": len(proposed),
        "proposed": [_proposed(case) for case in proposed[:MOST]],
        "decided": [
            {"interaction_id": name, "decision": decision, "case_id": case, "at": time_of(at_us)}
            for name, decision, case, at_us in (
                [] if feedback is None else feedback.fetch(_DECIDED, (MOST,))
            )
        ],
    }


def approve(source: PageSource, body: Mapping[str, Any]) -> str:
    """Make a proposed answer's prompt a test case; return a sentence on the result.

    Args:
        source: the store.
        body: fields of the request: ``interaction_id``, repeated as ``confirm``, and optionally
            ``expected`` and ``field``.

    Raises:
        ConfigurationError: it would be invalid with the case.
        InteractionNotFoundError: the answer is not proposed.
        QueryError: the request is unconfirmed, or there is no configuration.
    """
    loaded, feedback, name = _review_target(source, body)
    expected, field = (body.get(key) for key in ("expected", "field"))
    _, sentence = approve_case(
        loaded,
        feedback,
        name,
        expected=None if expected is None else str(expected),
        field=str(field) if field else None,
    )
    return sentence


def reject(source: PageSource, body: Mapping[str, Any]) -> str:
    """Reject a proposed answer; return a sentence on the result.

    Raises:
        InteractionNotFoundError: the answer is not proposed.
        QueryError: the request is unconfirmed, or there is no configuration.
    """
    return reject_case(*_review_target(source, body))[1]


def _review_target(
    source: PageSource, body: Mapping[str, Any]
) -> tuple[Loaded, FeedbackStore, str]:
    name = str(body.get("interaction_id") or "")
    check_confirmed(body, name)
    feedback = source.feedback()
    if source.config is None or feedback is None:
        raise QueryError(NO_CONFIGURATION if source.config is None else "Nothing is proposed.")
    return load(source.config), feedback, name


def _why_not(loaded: Loaded | None) -> str | None:
    """Return why no case can be approved; ``None`` if approval is possible."""
    if loaded is None:
        return NO_CONFIGURATION
    return NO_FILE if loaded.configuration.evaluation.test_cases.approved is None else None


def _fields(cases: Sequence[Case]) -> list[str]:
    """Return the candidate fields for the prompt; empty if there is only one choice."""
    inputs = [case.input for case in cases]
    names = {name for case_input in inputs if isinstance(case_input, dict) for name in case_input}
    is_clear = not names or (
        len(names) == 1 and all(isinstance(case_input, dict) for case_input in inputs)
    )
    return [] if is_clear else sorted(names)


def _proposed(case: ProposedCase) -> Page:
    answer = case.interaction
    prompt, response = (
        shortened(text, LONGEST, redacted_text) for text in (case.prompt, answer.response)
    )
    return {
        "interaction_id": answer.interaction_id,
        "case_id": case.case_id,
        "prompt": prompt,
        "answer": response,
        "marks": line_of(case.marks, 2_000),
        "role": line_of(answer.role),
        "model": line_of(answer.model),
        "adapter_version": answer.adapter_version,
        "at": time_of(answer.created_us),
    }
