"""Policy page: who serves and why, learning curves, actions, refusals."""

from typing import Final

from convergence_core.errors import RunNotFoundError
from convergence_core.policy.course import course_of
from tasks.pages.source import Page, PageSource, line_of, page_of
from tasks.report.policy_section import policy_blocks
from tasks.store.policy.round_store import RoundStore

BEGIN: Final = ("convergence policy train",)
"""Commands by which a policy begins to learn."""


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
    looks = rounds.latest_gate(system)
    serves, reason = (looks[0].serves, looks[0].reason) if looks else (None, "")
    return page_of(policy_blocks(serves, reason, looks, course_of(rounds.episodes(system))))
