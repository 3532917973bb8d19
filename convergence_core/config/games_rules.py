"""Rules of ``society.games``: known games, known roles, players that can play."""

from collections.abc import Iterator
from typing import Final

from convergence_core.config.games import (
    ANSWER_GAMES,
    BUILT_IN,
    REAL_TASK,
    SANDBOX,
    GameConfig,
    GamesConfig,
    RoleConfig,
    known_roles,
)
from convergence_core.config.models import Configuration
from convergence_core.config.problems import Report
from convergence_core.config.schema import is_default
from convergence_core.config.source import Path

_GAMES: Final = ("society", "games", "games")
_OF_MODELS: Final = ("model_name", "persona", "temperature")


def check_games(configuration: Configuration, report: Report) -> None:
    """Check games and roles as far as no file of one's own is needed."""
    games = configuration.society.games
    if games == GamesConfig():
        return
    if not configuration.storage.keep_text:
        rule = "must be true with `society.games`: plays are read again after a resume, and shown"
        fix = "Remove it, or remove `society.games`."
        report.add("storage.keep_text", rule, fix, value="false", about=("society.games",))
    if games.asks_llm and configuration.llm is None:
        fix = "Write e.g. `llm: {model: openai/gpt-4o-mini, api_key_env: OPENAI_API_KEY}`."
        report.require("llm", "by `society.games`: models play", fix, about=("society.games",))
    n_games = len(games.games or BUILT_IN)
    if games.plays < n_games:
        rule = f"must be at least the number of games, {n_games}: else a game gets no play"
        report.add("society.games.plays", rule, "Raise it.", value=str(games.plays))
    for name, game in games.games.items():
        _check_game(name, game, report)


def _check_game(name: str, game: GameConfig, report: Report) -> None:
    path: Path = (*_GAMES, name)
    known = known_roles(name, game)
    if game.file is None and known is None:
        built_in = ", ".join((*BUILT_IN, *ANSWER_GAMES))
        rule = f"must be a built-in game ({built_in}), a real task ({REAL_TASK}NAME), or name its `file`"
        fix = "Write e.g. `file: my_game.py:MyGame`."
        report.add(path, rule, fix, value=name, of_key=True)
        return
    if game.file is not None and name in {**BUILT_IN, **ANSWER_GAMES}:
        rule = "must have a name of its own: a built-in game has this one"
        report.add(path, rule, "Rename the game, or remove `file`.", value=name, of_key=True)
    for role, player in game.roles.items():
        if role == SANDBOX:
            rule = "must be no role of models: it runs programs"
            report.add((*path, "roles", role), rule, "Remove it.", value=role, of_key=True)
            continue
        if game.file is None and known is not None and role not in known:
            rule = f"must be a role of the game: {', '.join(known)}"
            report.add((*path, "roles", role), rule, "Rename it.", value=role, of_key=True)
        if player.player == "solver" and (game.file is not None or name not in BUILT_IN):
            rule = "must be `llm` or `chance`: only solved games have a solver"
            report.add((*path, "roles", role, "player"), rule, "Write `llm`.", value="solver")
        for key in _without_effect(player):
            why = f"with `player: {player.player}`, which is no model"
            report.no_effect((*path, "roles", role, key), why, "Remove it.")


def _without_effect(player: RoleConfig) -> Iterator[str]:
    if player.player != "llm":
        yield from (key for key in _OF_MODELS if not is_default(player, key))
