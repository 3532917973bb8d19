"""Opener of rounds of games."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

from convergence_core.games.round_records import GamesReport
from convergence_core.records import fields_of
from tasks.games.configured_games import configured_games, models_of
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded
from tasks.rlp.learner_calls import LearnerCalls, SubBudget
from tasks.run.adoption import champion_of_run
from tasks.run.assembly import Caller
from tasks.run.assessment import interrupted
from tasks.run.games_round import GamesRound, held_open
from tasks.run.opener import prepare_run, with_overrides
from tasks.store.tables.lineage import GAMES_TAG

GAMES: Final = "games"


@contextmanager
def open_games_round(
    loaded: Loaded, *, seed: int | None = None, mock_url: str | None = None
) -> Iterator[GamesRound]:
    """Open a round of games, or continue an interrupted one.

    Args:
        loaded: the configuration and its files.
        seed: replaces ``optimization.seed``.
        mock_url: URL of a server that answers in place of chat models.

    Raises:
        ConfigurationError: a game cannot be played as configured.
        LeaseHeldError: another process plays a round of this system.
        StoreError: the store cannot be used.
    """
    configuration = loaded.configuration
    share, limits = configuration.society.games.max_share_usd, configuration.budget
    budget = {
        "max_usd": None if limits.max_usd is None else share * limits.max_usd,
        "max_calls": None if limits.max_calls is None else max(1, int(share * limits.max_calls)),
    }
    configuration = with_overrides(configuration, seed=seed, budget=budget)
    loaded = replace(loaded, configuration=configuration)
    caller: Caller = {} if mock_url is None else {"mock_url": mock_url}
    world = Environment.of(configuration, mock_url=mock_url)
    redact = world.redactor(configuration)
    with ExitStack() as held:
        games = configured_games(loaded, world, redact)
        for game in games.values():
            held.callback(game.close)
        run = interrupted(loaded, caller, GAMES_TAG) or prepare_run(
            loaded, part=GAMES_TAG, **caller
        )
        held.enter_context(run)
        run.begin_final()
        calls = LearnerCalls(GAMES, run.session, SubBudget(limit_usd=None))
        held.callback(calls.close, *models_of(games))
        incumbent = champion_of_run(run) or run.study.baseline
        with held_open(GamesRound(run, games, calls, redact, incumbent=incumbent)) as opened:
            yield opened


def listed_games(loaded: Loaded, *, mock_url: str | None = None) -> list[dict[str, Any]]:
    """Return a configuration's games and their players without a call.

    Raises:
        ConfigurationError: a game cannot be played as configured.
    """
    world = Environment.of(loaded.configuration, mock_url=mock_url)
    games = configured_games(loaded, world, world.redactor(loaded.configuration))
    for game in games.values():
        game.close()
    return [
        {
            "game": game.game.id,
            **fields_of(game.game, "version", "feeds", "grounded"),
            "most_replies": sum(game.game.cost[role] for role in (*game.seats, *game.of_system)),
            "players": dict(game.names),
            "off_reason": game.off_reason,
        }
        for game in games.values()
    ]


def play_games(opened: GamesRound, tell: Callable[[str], None] | None = None) -> GamesReport:
    """Play an open round to its end, as the flow ``games`` does; return its report.

    Args:
        opened: the round.
        tell: called with a line on each step.
    """
    say = tell or (lambda _: None)
    if not opened.is_finished:
        opened.plan()
        for game in opened.planned:
            say(f"{game.game}: {opened.play(game.game)} plays")
    return opened.finish()
