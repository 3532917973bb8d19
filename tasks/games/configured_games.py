"""Configured games, including the user's, with a player for each role."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from convergence_core.config import Configuration
from convergence_core.config.games import (
    ANSWER_GAMES,
    BUILT_IN,
    SANDBOX,
    SYSTEM,
    GameConfig,
    RoleConfig,
    is_real_task,
)
from convergence_core.errors import ConfigurationError, Problem
from convergence_core.games.contract import LegalPlayer
from convergence_core.games.game import Game
from convergence_core.games.registry import solved_games
from convergence_core.games.solved.solver import solve
from convergence_core.games.solved.tree import SEATS, TreeGame
from convergence_core.ports import LLM, Ask, Completion, Player
from convergence_core.records import Json
from tasks.calls.metric_calls import PaidCall
from tasks.calls.model_calls import GAME, Model
from tasks.games.answer_games import game_like_cases
from tasks.games.own_games import OwnGame, load_game
from tasks.games.reasoning_audits import RealTasks, check_real_task
from tasks.games.sandbox import Sandbox, why_unavailable
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded
from tasks.inputs.storage import store_path
from tasks.rlp.factory import make_model

WORDING_VERSION: Final = "games-1"
PERSONA: Final = "You play a game. Reply with what the question wants, and with nothing else."
"""System message of a player without a configured persona."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSeat:
    """Role that a model plays."""

    model: Model
    persona: str
    temperature: float | None
    limit: int
    """Maximum tokens of a reply."""
    redact: Callable[[str], str]

    def call(self, ask: Ask) -> PaidCall:
        """Return the paid call that sends one prompt to the model."""
        return self.model.chat(
            GAME,
            [
                {"role": "system", "content": self.persona},
                {"role": "user", "content": ask.text},
            ],
            limit=self.limit,
            read=self._kept,
            temperature=self.temperature,
        )

    def _kept(self, done: Completion) -> Json:
        """Return a reply without secrets and encodable, as the game uses, scores and stores it.

        Secrets are removed before the journal stores the reply, so replaying a journal gives the
        same play.
        """
        return self.redact(done.text.encode("utf-8", "replace").decode("utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredGame:
    """A game and its players."""

    game: Game
    seats: Mapping[str, ModelSeat]
    """Roles that models play."""
    of_system: frozenset[str]
    """Roles that the optimized system plays."""
    players: Mapping[str, Player]
    """All other roles."""
    names: Mapping[str, str]
    """Role → name of its player."""
    off_reason: str | None = None
    """Why the game cannot run here; ``None`` if it can."""
    dealt: tuple[Game | None, ...] | None = None
    """Game of each play, each about another answer; ``None`` means ``game`` for every play."""
    close: Callable[[], None] = lambda: None
    """Ends the game's processes; safe to call twice."""

    def of_play(self, index: int) -> Game:
        """Return the game of a play.

        Raises:
            LookupError: its answers are no longer stored.
        """
        game = self.game if self.dealt is None else self.dealt[index]
        if game is None:
            raise LookupError("its answers are no longer stored")
        return game


def configured_games(
    loaded: Loaded, world: Environment, redact: Callable[[str], str]
) -> dict[str, ConfiguredGame]:
    """Return a configuration's games by id, with the user's games checked against the contract.

    Args:
        loaded: Configuration and the base folder of its files.
        world: Keys, prices and mocks.
        redact: Removes secrets from replies.

    Raises:
        ConfigurationError: a file cannot be read, a game breaks the contract or hangs, a role is
            unknown, a real task is unavailable here, or a model is to play and ``llm`` is missing.
    """
    games = _wanted(loaded.configuration)
    models: dict[str | None, Model] = {}
    made = {}
    tasks = RealTasks(store_path(loaded))
    with ExitStack() as opened:  # processes, which end unless all games are made
        opened.callback(tasks.close)
        for name, config in games.items():
            game: Game
            off, close = None, tasks.close
            if is_real_task(name, config):
                game, off = tasks.game(name)
            else:
                game = made_game(name, config, loaded)
            if isinstance(game, OwnGame):
                close = opened.callback(game.close)
            _check_roles(name, config, game)
            configured = _with_players(game, config, loaded.configuration, world, redact, models)
            made[name] = replace(configured, off_reason=off or configured.off_reason, close=close)
        opened.pop_all()
    return made


def check_user_games(loaded: Loaded) -> None:
    """Check each game file against the contract, and find each real task's generator.

    Raises:
        ConfigurationError: a file cannot be read, a game breaks the contract or hangs, a role or a
            generator is unknown; holds all problems.
    """
    problems: list[Problem] = []
    for name, config in loaded.configuration.society.games.games.items():
        try:
            if is_real_task(name, config):
                check_real_task(name)
            if config.file is None:
                continue
            game = made_game(name, config, loaded)
            if isinstance(game, OwnGame):
                game.close()
            _check_roles(name, config, game)
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)


def _check_roles(name: str, config: GameConfig, game: Game) -> None:
    for role in config.roles:
        if role not in game.roles:
            known = ", ".join(role for role in game.roles if role != SANDBOX)
            rule = f"must be a role of the game: {known}"
            raise ConfigurationError.of(f"{_key(name)}.roles.{role}", rule, "Rename it.")


def models_of(games: Mapping[str, ConfiguredGame]) -> list[LLM]:
    """Return the distinct models that play."""
    models = [seat.model.llm for game in games.values() for seat in game.seats.values()]
    return [*{id(model): model for model in models}.values()]


def missing_system_error(games: Mapping[str, ConfiguredGame]) -> ConfigurationError:
    """Return the error for games in which the system should play but cannot."""
    name, role = next(
        (name, role) for name, game in games.items() for role in sorted(game.of_system)
    )
    return ConfigurationError.of(
        f"society.games.games.{name}.roles.{role}.player",
        "can be `system` if a champion or defaults answer, and test cases hold one text each: a text, a "
        "mapping with one text, or messages that end with the user's",
        "Let an `llm` play.",
        value="system",
    )


def _wanted(configuration: Configuration) -> dict[str, GameConfig]:
    games = dict(configuration.society.games.games)
    solver = RoleConfig(player="solver")
    return games or {name: GameConfig(roles={SEATS[1]: solver}) for name in BUILT_IN}


def _key(name: str) -> str:
    return f"society.games.games.{name}"


def made_game(name: str, config: GameConfig, loaded: Loaded) -> Game:
    """Return a game by its id; a game of the user runs in a process, checked against the contract.

    Raises:
        ConfigurationError: it cannot be made, has another id, or breaks a rule of the contract.
    """
    if name in ANSWER_GAMES:
        return game_like_cases(name, loaded)
    if config.file is None:
        return next(game for game in solved_games() if game.id == name)
    game = load_game(config.file, loaded.base_dir, f"{_key(name)}.file")
    if game.id != name:
        game.close()
        fix = f"Write the game as `{game.id}:`."
        raise ConfigurationError.of(_key(name), "must be the game's own `id`", fix, value=game.id)
    return game


def _with_players(  # noqa: PLR0917 - of one place
    game: Game,
    config: GameConfig,
    configuration: Configuration,
    world: Environment,
    redact: Callable[[str], str],
    models: dict[str | None, Model],
) -> ConfiguredGame:
    seats: dict[str, ModelSeat] = {}
    players: dict[str, Player] = {}
    names: dict[str, str] = {}
    of_system: set[str] = set()
    solver = solve(game) if isinstance(game, TreeGame) else None
    off = None
    for role in game.roles:
        wanted = config.roles.get(role, RoleConfig())
        if role == SANDBOX:
            players[role], names[role] = Sandbox(), SANDBOX
            off = off or why_unavailable() or None
        elif wanted.player == "solver" and solver is not None:
            players[role], names[role] = solver, "solver"
        elif wanted.player == "system":
            of_system.add(role)
            names[role] = SYSTEM
        elif wanted.player == "chance":
            players[role], names[role] = LegalPlayer(), "chance"
        else:
            seats[role] = _seat(wanted, configuration, world, redact, models)
            names[role] = seats[role].model.name
    return ConfiguredGame(
        game=game,
        seats=seats,
        of_system=frozenset(of_system),
        players=players,
        names=names,
        off_reason=off,
    )


def _seat(
    wanted: RoleConfig,
    configuration: Configuration,
    world: Environment,
    redact: Callable[[str], str],
    models: dict[str | None, Model],
) -> ModelSeat:
    if configuration.llm is None:
        fix = "Write e.g. `llm: {model: openai/gpt-4o-mini, api_key_env: OPENAI_API_KEY}`."
        raise ConfigurationError.of("llm", "is required by games: models play", fix)
    name, config = wanted.model_name, configuration.llm
    if name not in models:
        config = config if name is None else config.model_copy(update={"model": name})
        models[name] = make_model(config, world, wording_version=WORDING_VERSION)
    return ModelSeat(
        model=models[name],
        persona=wanted.persona or PERSONA,
        temperature=wanted.temperature,
        limit=configuration.society.games.max_tokens,
        redact=redact,
    )
