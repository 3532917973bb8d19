"""Policy page: who serves and why, learning curves, actions, refusals."""

from dataclasses import asdict
from typing import Final

from convergence_core.errors import RunNotFoundError
from convergence_core.policy.course import GateRow, course_of
from convergence_core.policy.gate import serving_sentences
from tasks.pages.source import Page, PageSource, line_of
from tasks.store.policy.round_store import RoundStore

BEGIN: Final = ("convergence policy train",)
"""Commands by which a policy begins to learn."""
_LONGEST: Final = 2_000
"""Characters of a reason."""


def policy_systems(source: PageSource) -> Page:
    """Return the systems whose prompts were changed in rounds, the latest first."""
    store = source.policy()
    systems = [] if store is None else RoundStore(store).systems()
    return {"systems": systems, "commands": [] if systems else list(BEGIN)}


def policy_of(source: PageSource, system: str) -> Page:
    """Return the policies of a system's prompts.

    Raises:
        RunNotFoundError: no round was played on them.
    """
    store = source.policy()
    if store is None or system not in RoundStore(store).systems():
        raise RunNotFoundError(
            f"a system must have rounds of the policy, and {line_of(system)!r} has none."
        )
    rounds = RoundStore(store)
    course, looks = course_of(rounds.episodes(system)), rounds.latest_gate(system)
    serves = looks[0].serves if looks else None
    sentences = ["No round has ended, so the gate has not looked yet."]
    if serves is not None:
        sentences = [*serving_sentences(serves, looks[0].reason)]
    return {
        "system": system,
        "serves": serves,
        "sentences": [line_of(sentence, _LONGEST) for sentence in sentences],
        "verdicts": [_verdict(look) for look in looks],
        "curve": [asdict(point) for point in course.curve],
        "shares": [asdict(share) for share in course.shares],
        "refused": [asdict(refusal) for refusal in course.refused],
    }


def _verdict(row: GateRow) -> Page:
    return {
        "baseline": row.baseline,
        "decision": row.decision,
        "n": row.n,
        "mean": row.mean,
        "low": row.low,
        "high": row.high,
        "log_e": row.log_e,
        "log_threshold": row.log_threshold,
    }
