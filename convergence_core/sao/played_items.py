"""Verdicts on items of executed truth in plays, and the trust after them.

Each round of games is one audit. Older rounds and audits have less weight
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
"""Log score of a judge that is undecided, in nats."""
_TIE: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedItem:
    """One verdict of the judge of preferences in a play."""

    round_number: int
    item_id: str
    log_score: float
    """Log probability of the truth, in nats; an unreadable verdict has the minimum."""

    @property
    def n_right(self) -> float:
        """1 for a right verdict, .5 for an undecided one, else 0."""
        gap = self.log_score - COIN
        return 0.5 if abs(gap) <= _TIE else float(gap > 0.0)


def after_plays(
    state: SaoState, plays: Sequence[PlayedItem], audited: Sequence[str]
) -> tuple[SaoState, tuple[str, ...]]:
    """Return the state with the rounds of games, and the ids of all audit items.

    Args:
        state: State with the trust so far.
        plays: Verdicts of all finished rounds.
        audited: Item ids of all other audits.
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
