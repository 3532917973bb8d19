"""``society.games``: language games, and who plays their roles."""

from collections.abc import Collection, Mapping
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
"""Game that needs nothing but players → its roles."""
OF_ANSWERS: Final[Mapping[str, tuple[str, ...]]] = {
    "debate": ("advocate", "judge"),
    "judge": ("judge",),
}
"""Game about answers that the system gave, of which execution knows the right ones → its roles."""
REAL_TASK: Final = "reasoning-"
"""Beginning of the ids of real tasks; the rest is the generator's name, with ``-`` for ``_``."""
SOLVER_OF_TASKS: Final = ("solver",)
"""Roles of real tasks."""
SANDBOX: Final = "sandbox"
"""Role that runs programs; it is nobody's but the limited process's."""
SYSTEM: Final = "the system"
"""Name of the optimized system as a player."""
PlayerKind: TypeAlias = Literal["llm", "system", "solver", "chance"]


class RoleConfig(Section):
    """Who plays a role of a game."""

    nullable = frozenset({"temperature"})

    player: PlayerKind = "llm"
    """`llm`: a model; `system`: what is optimized itself, as its champion or else its defaults; `solver`: the best moves, of games whose best moves are known; `chance`: a legal
    option, or a number, drawn by chance."""
    model_name: Text | None = None
    """Model that plays, at the endpoint of `llm`. Absent: that of `llm`."""
    persona: Text | None = None
    """Who the model is told to be. Absent: a player who replies with what is asked alone."""
    temperature: float | None = Field(default=0.7, ge=0, le=2)
    """How random its replies are. `null`: not sent, for models that refuse it."""


class GameConfig(Section):
    """A game that may be played."""

    file: FunctionPath | None = None
    """A game of your own: `path/to/file.py:NAME` or `module:NAME` of a class, or of a function, that takes
    nothing and makes the game. Absent: the built-in game of that name, or the real task `reasoning-NAME`."""
    roles: dict[str, RoleConfig] = Field(default_factory=dict)
    """Role → who plays it. Roles that are not named are played by the `llm`; `sandbox`, which runs
    programs, by nobody else."""


class GamesConfig(Section):
    """Language games between models, of which those are kept that help on held-out cases."""

    nullable = frozenset({"every"})

    enabled: bool = False
    """Whether `games/weekly` runs by its schedule; by hand games always can be played."""
    every: int | None = Field(default=None, ge=1)
    """Generations of an optimization from one round within it to the next, the first before generation `every`.
    `null`: none is played within a run."""
    games: dict[str, GameConfig] = Field(default_factory=dict)
    """Id of a game → who plays it. Empty: all built-in games, played by the `llm` against the solver."""
    plays: int = Field(default=40, ge=1, le=100_000)
    """Plays of one round, all its games together."""
    n_at_once: int = Field(default=8, ge=1, le=1_000)
    """Plays that wait for a model at the same time, within the limits of `llm`."""
    max_tokens: int = Field(default=512, ge=1, le=1_000_000)
    """Longest reply of a model, in tokens; one that is cut off is played as far as it goes."""
    max_share_usd: float = Field(default=0.1, gt=0, le=1)
    """Share of `budget.max_usd` and `budget.max_calls` that one round may use, its look at held-out cases
    included."""

    @property
    def asks_llm(self) -> bool:
        """Whether a key of games is written and a model plays, as far as names of roles are known."""
        return self._asks(unknown=False)

    @property
    def may_ask_llm(self) -> bool:
        """Whether a model may play: a game of one's own may have roles that are not named here."""
        return self._asks(unknown=True)

    def _asks(self, *, unknown: bool) -> bool:
        if self == GamesConfig():
            return False
        return not self.games or any(
            _asks_llm(game, known_roles(name, game), unknown=unknown)
            for name, game in self.games.items()
        )


def is_real_task(name: str, game: GameConfig) -> bool:
    """Whether a game is a generator of the extra ``games``."""
    return game.file is None and name.startswith(REAL_TASK)


def known_roles(name: str, game: GameConfig) -> tuple[str, ...] | None:
    """Return the roles of a game; ``None``: only its file knows them."""
    return SOLVER_OF_TASKS if is_real_task(name, game) else {**BUILT_IN, **OF_ANSWERS}.get(name)


def _asks_llm(game: GameConfig, known: Collection[str] | None, *, unknown: bool) -> bool:
    """Whether a game has a role of the ``llm``; ``unknown``: what roles that nobody knows count as."""
    if any(role.player == "llm" for role in game.roles.values()):
        return True
    return unknown if known is None else not {*known} <= game.roles.keys()
