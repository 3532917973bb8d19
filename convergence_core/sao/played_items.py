"""Verdicts on items of executed truth in plays, and the trust after them.

Each round of games is one audit: the older rounds and audits are, the lighter they count
(``convergence_core.judges.trust``).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Final

from convergence_core.judges.trust import Audit
from convergence_core.sao.state import SaoState

COIN: Final = -math.log(2.0)
"""Log score of a judge that says nothing, in nats."""
_TIE: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedItem:
    """One verdict of the judge of preferences, given in a play."""

    round_number: int
    item_id: str
    log_score: float
    """ln of the probability that it gave the truth, in nats; an unreadable verdict has the worst one."""

    @property
    def n_right(self) -> float:
        """1 if it was right, .5 if it said nothing, else 0."""
        gap = self.log_score - COIN
        return 0.5 if abs(gap) <= _TIE else float(gap > 0.0)


def after_plays(
    state: SaoState, plays: Sequence[PlayedItem], audited: Sequence[str]
) -> tuple[SaoState, tuple[str, ...]]:
    """Return the state with the rounds of games, and the items that the judge was tried on.

    Args:
        state: with the trust so far.
        plays: of all finished rounds.
        audited: ids of the items of all audits but these.
    """
    known = {*audited}
    by_round = attrgetter("round_number")
    for _, group in groupby(sorted(plays, key=by_round), key=by_round):
        played = [*group]
        ids = {play.item_id for play in played}
        audit = Audit(
            n_items=len(played),
            n_right=sum(play.n_right for play in played),
            n_new=len(ids - known),
        )
        known |= ids
        state = replace(state, trust=state.trust.after(audit))
    return state, tuple(dict.fromkeys((*audited, *(play.item_id for play in plays))))
