"""Solved games, and each game's share of a round's plays."""

from collections.abc import Iterable, Mapping

from convergence_core.games.game import Game
from convergence_core.games.solved.hidden_information import KuhnPoker, RockPaperScissors
from convergence_core.games.solved.perfect_information import Nim, TicTacToe
from convergence_core.games.solved.tree import TreeGame


def solved_games() -> tuple[TreeGame, ...]:
    """Return the four games with known best moves."""
    return tuple(TreeGame(tree()) for tree in (TicTacToe, Nim, KuhnPoker, RockPaperScissors))


def count_plays(
    games: Iterable[Game],
    n_plays: int,
    *,
    p_keep: Mapping[str, float],
    price_usd: Mapping[str, float],
) -> dict[str, int]:
    """Return how many of a round's plays each game gets.

    Shares follow P(keep) per dollar; games without a ground are cut to half of all plays together.

    Args:
        games: that may be played.
        n_plays: of the round, all games together.
        p_keep: game → P(keep), in (0, 1].
        price_usd: game → what a play costs, at least 0; a free game counts as one of the cheapest
            price above 0.
    """
    playable = list(games)
    cheapest = min((price_usd[g.id] for g in playable if price_usd[g.id] > 0), default=1.0)
    weight = {g.id: p_keep[g.id] / max(price_usd[g.id], cheapest) for g in playable}
    loose = sum(weight[g.id] for g in playable if not g.grounded)
    firm = sum(weight[g.id] for g in playable if g.grounded)
    if loose > firm:  # so that both halves are equal; without a grounded game only half is played
        for g in playable:
            if not g.grounded:
                weight[g.id] *= firm / loose if firm else 1.0
    total = firm + min(loose, firm) if firm else 2.0 * loose
    return {g.id: int(n_plays * weight[g.id] / total + 1e-9) for g in playable}
