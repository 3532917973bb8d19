"""Audit items: a right and a wrong answer to one test case, by executed metrics.

Executed metrics define the truth (a match, a pattern, a number, a schema, a user's function).
Model judgements, latency and cost do not. An answer is right if the metrics average at least .9,
wrong if at most .5. A hash selects items, one per case before a second, so that easy ones are not
preferred.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from convergence_core.records import canonical_json, sha256_hex
from convergence_core.sao.preferences import Answer, Comparison

EXECUTED: Final = frozenset(
    {"exact_match", "contains", "regex", "numeric", "json_schema", "similarity", "function"}
)
"""Types of metrics that are executed."""
RIGHT: Final = 0.9
WRONG: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundedAnswer:
    """One answer to a test case with the result of executed metrics."""

    case_id: str
    prompt: str
    answer: str
    author: str
    """Id of the candidate."""
    truth: float
    """Mean of the executed metrics, in [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditItem:
    """A right and a wrong answer, in an order that carries no information."""

    item_id: str
    case_id: str
    comparison: Comparison
    first_is_right: bool


def audit_items(
    answers: Iterable[GroundedAnswer], n: int, *, used: Sequence[str] = ()
) -> list[AuditItem]:
    """Return up to ``n`` items, a case's second after all cases' first.

    Args:
        answers: Answers of all candidates to test cases.
        n: Maximum number of items.
        used: Ids of items from earlier audits; they come last.
    """
    right: dict[str, dict[str, GroundedAnswer]] = {}
    wrong: dict[str, dict[str, GroundedAnswer]] = {}
    for grounded in answers:
        side = right if grounded.truth >= RIGHT else wrong if grounded.truth <= WRONG else None
        if side is not None and grounded.answer.strip():
            side.setdefault(grounded.case_id, {}).setdefault(grounded.answer, grounded)
    before = set(used)
    ranked = []
    for case in right.keys() & wrong.keys():
        goods, bads = right[case].values(), wrong[case].values()
        items = [_item(a, b) for a in goods for b in bads if a.answer != b.answer]
        items.sort(key=lambda item: item.item_id)
        ranked += [(i.item_id in before, place, i.item_id, i) for place, i in enumerate(items)]
    return [item for *_, item in sorted(ranked, key=lambda row: row[:3])[:n]]


def _item(good: GroundedAnswer, bad: GroundedAnswer) -> AuditItem:
    name = sha256_hex(canonical_json([good.case_id, good.answer, bad.answer]))
    first_is_right = int(name[-1], 16) % 2 == 0
    a, b = (good, bad) if first_is_right else (bad, good)
    return AuditItem(
        item_id=name[:24],
        case_id=good.case_id,
        comparison=Comparison(
            prompt=good.prompt,
            first=Answer(text=a.answer, author=a.author),
            second=Answer(text=b.answer, author=b.author),
            kind="candidates",
        ),
        first_is_right=first_is_right,
    )
