"""Pairs of answers of which one is right."""

from convergence_core.sao.executed_items import AuditItem
from convergence_core.sao.preferences import Answer, Comparison


def labelled_pair(prompt: str, first: str, second: str, *, first_is_right: bool) -> AuditItem:
    return AuditItem(
        item_id="",
        case_id="",
        comparison=Comparison(
            prompt=prompt,
            first=Answer(text=first, author=""),
            second=Answer(text=second, author=""),
            kind="candidates",
        ),
        first_is_right=first_is_right,
    )
