"""Opener of rounds of games: alone, or within a run that this process holds open."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from convergence_core.games.round_records import GamesReport
from tasks.games.configured_games import configured_games, models_of
from tasks.games.games_learner import GAMES, GamesLearner, share_of_round
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded
from tasks.rlp.learner_calls import LearnerCalls, SubBudget
from tasks.run.assembly import Caller
from tasks.run.assessment import champion_of_test, interrupted
from tasks.run.games_round import GamesRound, held_open
from tasks.run.opener import open_config, prepare_run, with_overrides
from tasks.run.run import Run, run_of
from tasks.store.tables.lineage import GAMES_TAG


def open_round(
    config: str | None, run_id: str | None, seed: int | None = None
) -> AbstractContextManager[GamesRound]:
    """Open the round behind a flow run's parameters.

    Args:
        config: path of the configuration, of a round that is played alone.
        run_id: a run that this process holds open, of a round within it.
        seed: of a round that is played alone, in place of ``optimization.seed``.

    Raises:
        ConfigurationError: no configuration is named, or it is wrong.
        LeaseHeldError: another process plays a round of this system alone.
        RunNotFoundError: this process holds no such run.
        StoreError: the store cannot be used.
    """
    if run_id is not None:
        return open_round_within(run_of(run_id))
    loaded, _, _ = open_config(config, None)
    return open_games_round(loaded, seed=seed)


@contextmanager
def open_round_within(run: Run) -> Iterator[GamesRound]:
    """Open the round before the next generation of a run; one that was interrupted continues.

    Raises:
        KeyError: the run plays no games.
    """
    learner = run.learners[GAMES]
    assert isinstance(learner, GamesLearner)  # noqa: S101 - its name is its own
    opened = GamesRound(
        run,
        learner.games,
        learner.calls_of_round(run.configuration),
        learner.redact,
        incumbent=run.study.leader(run.state),
        hold=lambda tables: learner.keep(run.next_generation, tables),
    )
    with held_open(opened):
        yield opened


@contextmanager
def open_games_round(
    loaded: Loaded, *, seed: int | None = None, mock_url: str | None = None
) -> Iterator[GamesRound]:
    """Open a round that is played alone; one that was interrupted continues.

    Args:
        loaded: the configuration and its files.
        seed: in place of ``optimization.seed``.
        mock_url: server that answers in place of chat models.

    Raises:
        ConfigurationError: a game cannot be played as it is configured.
        LeaseHeldError: another process plays a round of this system alone.
        StoreError: the store cannot be used.
    """
    usd, n_calls = share_of_round(loaded.configuration)
    budget: dict[str, float | None] = {"max_usd": usd, "max_calls": n_calls}
    loaded = replace(
        loaded, configuration=with_overrides(loaded.configuration, seed=seed, budget=budget)
    )
    caller: Caller = {} if mock_url is None else {"mock_url": mock_url}
    world = Environment.of(loaded.configuration, mock_url=mock_url)
    redact = world.redactor(loaded.configuration)
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
        incumbent = champion_of_test(run) or run.study.baseline
        with held_open(GamesRound(run, games, calls, redact, incumbent=incumbent)) as opened:
            yield opened


def listed_games(loaded: Loaded, *, mock_url: str | None = None) -> list[dict[str, Any]]:
    """Return a configuration's games and their players, without a call.

    Raises:
        ConfigurationError: a game cannot be played as it is configured.
    """
    world = Environment.of(loaded.configuration, mock_url=mock_url)
    games = configured_games(loaded, world, world.redactor(loaded.configuration))
    for game in games.values():
        game.close()
    return [
        {
            "game": game.game.id,
            "version": game.game.version,
            "feeds": game.game.feeds,
            "grounded": game.game.grounded,
            "most_replies": sum(game.game.cost[role] for role in (*game.seats, *game.of_system)),
            "players": dict(game.names),
            "off_reason": game.off_reason,
        }
        for game in games.values()
    ]


def play_games(opened: GamesRound, tell: Callable[[str], None] | None = None) -> GamesReport:
    """Take an open round to its end, as the flow ``games`` does; return what it did.

    Args:
        opened: the round.
        tell: called with each step.
    """
    say = tell or (lambda _: None)
    if not opened.is_finished:
        look = opened.take_look()
        if look.is_new:
            say(f"looked at {look.n_cases} held-out cases")
        opened.toss_coins()
        for game in opened.included:
            say(f"{game.game}: {opened.play(game.game)} plays")
    return opened.finish()
