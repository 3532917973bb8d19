"""``society.games``: language games, and the players of their roles."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from pydantic import Field

from convergence_core.config.base import FunctionPath, Section, Text

SEATS: Final = ("first", "second")
BUILT_IN: Final[Mapping[str, tuple[str, ...]]] = {
    "kuhn-poker": SEATS,
    "nim": SEATS,
    "rock-paper-scissors": SEATS,
    "tic-tac-toe": SEATS,
}
"""Game that needs only players → its roles."""
ANSWER_GAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "debate": ("advocate", "judge"),
    "judge": ("judge",),
}
"""Game about answers of the system, whose correctness code can check → its roles."""
REAL_TASK: Final = "reasoning-"
"""Id prefix of real tasks; the rest is the generator's name, with ``-`` for ``_``."""
SOLVER_OF_TASKS: Final = ("solver",)
"""Roles of real tasks."""
SANDBOX: Final = "sandbox"
"""Role that runs programs in a restricted process."""
SYSTEM: Final = "the system"
"""Name of the optimized system as a player."""
PlayerKind: TypeAlias = Literal["llm", "system", "solver", "chance"]


class RoleConfig(Section):
    """Player of a game role."""

    nullable = frozenset({"temperature"})

    player: PlayerKind = "llm"
    """A model, the system itself (champion or defaults), a solver with the best moves, or
    random legal moves."""
    model_name: Text | None = None
    """Model at the endpoint of `llm`. Default: that of `llm`."""
    persona: Text | None = None
    """Persona of the model. Default: a player who only replies."""
    temperature: float | None = Field(default=0.7, ge=0, le=2)
    """Sampling temperature; `null` omits it."""


class GameConfig(Section):
    """Language game."""

    file: FunctionPath | None = None
    """Class or function that makes your own game: `file.py:NAME` or `module:NAME`. Default: the
    built-in game, or the task `reasoning-NAME`."""
    roles: dict[str, RoleConfig] = Field(default_factory=dict)
    """Role → player. Others are played by `llm`; `sandbox` always runs programs."""


class GamesConfig(Section):
    """Language games between models; games whose hard cases help searches are kept."""

    enabled: bool = False
    """Whether the schedule `games/weekly` plays."""
    games: dict[str, GameConfig] = Field(default_factory=dict)
    """Players by game id. Default: all built-in games, `llm` against the solver."""
    plays: int = Field(default=40, ge=1, le=100_000)
    """Plays per round, over all games."""
    n_at_once: int = Field(default=8, ge=1, le=1_000)
    """Maximum plays in flight."""
    max_tokens: int = Field(default=512, ge=1, le=1_000_000)
    """Maximum reply length, in tokens."""
    max_share_usd: float = Field(default=0.1, gt=0, le=1)
    """Share of `budget.max_usd` and `budget.max_calls` per round."""

    def asks_llm(self, *, if_unknown: bool) -> bool:
        """Return whether games are configured and a model plays.

        Args:
            if_unknown: Result for a custom game, whose roles only its file defines.
        """
        if self == GamesConfig():
            return False
        for name, game in self.games.items():
            known = known_roles(name, game)
            is_open = if_unknown if known is None else not {*known} <= game.roles.keys()
            if is_open or any(role.player == "llm" for role in game.roles.values()):
                return True
        return not self.games


def is_real_task(name: str, game: GameConfig) -> bool:
    """Return whether a game is a generator of the extra ``games``."""
    return game.file is None and name.startswith(REAL_TASK)


def known_roles(name: str, game: GameConfig) -> tuple[str, ...] | None:
    """Return the roles of a game; ``None`` for a custom game, whose file defines them."""
    return SOLVER_OF_TASKS if is_real_task(name, game) else {**BUILT_IN, **ANSWER_GAMES}.get(name)
