"""Judge of pairs: one verdict in each order of the answers."""

from typing import Final

from convergence_core.errors import EvaluationFault
from convergence_core.records import Json
from convergence_core.sao.preferences import Comparison, Judgement
from convergence_core.sao.templates import JUDGING_QUESTION, judging
from tasks.calls.model_calls import SAO, AskModel, Model, UnreadableAnswerError
from tasks.sao.writer import FailedError, failed
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

VERDICT_LIMIT: Final = 16
"""Maximum tokens of a verdict."""


async def judge(
    comparison: Comparison, label: str, model: Model, ask_model: AskModel
) -> Judgement:
    """Judge a comparison in both orders.

    Args:
        comparison: Pair of answers.
        label: Part of the calls' keys, unique within a round.
        model: Model that judges.
        ask_model: Makes the calls.

    Raises:
        FailedError: one order failed, which voids the pair.
    """
    a, b = comparison.first.text, comparison.second.text
    first_shown_first = await _is_first_chosen(
        judging(comparison.prompt, a, b), f"{label}/12", model, ask_model
    )
    second_shown_first = await _is_first_chosen(
        judging(comparison.prompt, b, a), f"{label}/21", model, ask_model
    )
    return Judgement.of_verdicts(first_shown_first, not second_shown_first)


async def _is_first_chosen(text: str, label: str, model: Model, ask_model: AskModel) -> bool:
    call = model.chat(
        SAO,
        [{"role": "user", "content": f"{text} {JUDGING_QUESTION}"}],
        limit=VERDICT_LIMIT,
        read=lambda done: {"text": done.text},
        temperature=0.0,
    )
    try:
        reply, _ = await ask_model(call, label)
        return chosen(reply.value)
    except EvaluationFault as fault:
        raise failed("judgement", fault) from None
    except UnreadableAnswerError as error:
        raise FailedError(f"judgement: {error}") from None


def chosen(value: Json) -> bool:
    """Return whether the verdict is the first of two answers.

    Raises:
        UnreadableAnswerError: the verdict is neither A nor B.
    """
    text = value.get("text") if isinstance(value, dict) else None
    letter = text.strip().strip(".\"'*` ").upper() if isinstance(text, str) else ""
    if letter not in ("A", "B"):
        shown = one_line(str(text), 40, redacted_text)
        raise UnreadableAnswerError(f"must be A or B, not {shown!r}")
    return letter == "A"
