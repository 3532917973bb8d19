"""Games on offer: those that no alarm has switched off.

| alarm | off |
|---|---|
| the judge's trust is below .2, or unknown | games without a ground: debate |
| the judge's log score surely falls by debates: upper 80 % bound of their mean gain below 0 | debate |
| the cases of a game point searches the wrong way: upper 80 % bound of its effect below 0 | the game |

The judge's own game is always on: it is how trust comes back.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from scipy.special import stdtrit

from convergence_core.games.game import Game
from convergence_core.games.meta_critic import GameEffect
from convergence_core.judges.trust import LEAST_TRUST, Trust

LEAST_DEBATES: Final = 30
"""Minimum debates for a statement about their gain."""
WRONG_WAY: Final = "settings that pass its cases score lower on yours"
LEVEL: Final = 0.8
"""Level of the t interval of the mean gain."""


def unavailable_games(
    games: Iterable[Game],
    *,
    trust: Trust,
    gains: Sequence[float] = (),
    effects: Mapping[str, GameEffect] | None = None,
) -> dict[str, str]:
    """Return game → reason for games that the next round may not include.

    Args:
        games: All registered games.
        trust: Trust in the judge after the last audit.
        gains: Gain in the judge's log score from each debate so far, in nats.
        effects: Game → effect of its hard cases, for measured games.
    """
    unpaid = why_unpaid(gains)
    reasons = {
        game.id: _why_off(game, trust) or (unpaid if game.feeds == "debate" else "")
        for game in games
    }
    reasons |= {name: WRONG_WAY for name, effect in (effects or {}).items() if effect.is_dropped}
    return {name: why for name, why in reasons.items() if why}


def _why_off(game: Game, trust: Trust) -> str:
    if game.grounded:
        return ""
    if trust.n_missing:
        return f"trust in the judge is unknown: {trust.n_missing} more items with an executed answer are needed"
    if not trust.is_enabled:
        return f"trust in the judge is {trust.value:.2f}, below {LEAST_TRUST:g}"
    return ""


def why_unpaid(gains: Sequence[float]) -> str:
    """Return why debates do not pay; empty if they do.

    Args:
        gains: Gain in the judge's log score from each debate so far, in nats.
    """
    n = len(gains)
    if n < LEAST_DEBATES:
        return ""
    mean = float(np.mean(gains))
    half = float(stdtrit(n - 1, 0.5 + LEVEL / 2)) * float(np.std(gains, ddof=1)) / math.sqrt(n)
    if mean + half >= 0.0:
        return ""
    return (
        f"debates made the judge worse, so they are not paid for: mean gain {mean:+.2f} nats "
        f"[{mean - half:+.2f}, {mean + half:+.2f}] ({100 * LEVEL:.0f} % t interval, {n} plays)"
    )
