"""Registry of games, and shares of a round's plays."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from convergence_core.games.contract import ID
from convergence_core.games.game import Game
from convergence_core.games.solved.hidden_information import KuhnPoker, RockPaperScissors
from convergence_core.games.solved.perfect_information import Nim, TicTacToe
from convergence_core.games.solved.tree import TreeGame

MOST_UNGROUNDED: Final = 0.5
"""Share of a round's plays that games without a ground may have together."""


@dataclass(frozen=True, slots=True)
class Registry:
    """Games by their ids.

    Raises:
        ValueError: an id is used twice or has another form.
    """

    games: tuple[Game, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for game in self.games:
            if not ID.fullmatch(game.id):
                raise ValueError(
                    "`id` of a game must be lower-case letters, digits and `-`, beginning with a "
                    f"letter, but got {game.id!r}. Rename it."
                )
            if game.id in seen:
                raise ValueError(f"`id` of a game must be its own, but {game.id!r} came twice")
            seen.add(game.id)

    def __iter__(self) -> Iterator[Game]:
        """Return the games in their order."""
        return iter(self.games)

    def game(self, name: str) -> Game:
        """Return a game by its id.

        Raises:
            KeyError: there is none.
        """
        for one in self.games:
            if one.id == name:
                return one
        known = ", ".join(sorted(one.id for one in self.games))
        raise KeyError(f"there is no game {name!r}; there are {known or 'none'}")

    def without(self, names: Iterable[str]) -> "Registry":
        """Return the registry less some games."""
        gone = set(names)
        return Registry(tuple(one for one in self.games if one.id not in gone))


def solved_games() -> tuple[TreeGame, ...]:
    """Return the four games whose best moves are known."""
    return tuple(TreeGame(tree()) for tree in (TicTacToe, Nim, KuhnPoker, RockPaperScissors))


def plays_of(
    games: Iterable[Game],
    n_plays: int,
    *,
    p_keep: Mapping[str, float],
    price_usd: Mapping[str, float],
) -> dict[str, int]:
    """Return how many of a round's plays each included game gets.

    Shares follow P(keep) per dollar; games without a ground are cut to half of all plays together.

    Args:
        games: those that their coins included.
        n_plays: of the round, all games together.
        p_keep: game → P(keep), in (0, 1].
        price_usd: game → what a play costs, at least 0; a free game counts as one of the cheapest
            price above 0.

    Raises:
        ValueError: a number is out of range.
    """
    included = list(games)
    if n_plays < 0 or any(p_keep[g.id] <= 0 or price_usd[g.id] < 0 for g in included):
        raise ValueError("`n_plays` and prices must be 0 or more, P(keep) above 0")
    cheapest = min((price_usd[g.id] for g in included if price_usd[g.id] > 0), default=1.0)
    weight = {g.id: p_keep[g.id] / max(price_usd[g.id], cheapest) for g in included}
    loose = sum(weight[g.id] for g in included if not g.grounded)
    firm = sum(weight[g.id] for g in included if g.grounded)
    if loose > firm:  # so that both halves are equal; without a grounded game only half is played
        for g in included:
            if not g.grounded:
                weight[g.id] *= firm / loose if firm else 1.0
    total = firm + min(loose, firm) if firm else 2.0 * loose
    return {g.id: int(n_plays * weight[g.id] / total + 1e-9) for g in included}
