"""Quotes of game rounds: evaluations of held-out cases, and replies of models.

A round is expected to play half of the games. Random plays give the length of prompts and the number of
replies, without a call.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Final

from convergence.cost_estimate.call_quotes import (
    TARGET_KEY,
    CallHistory,
    RoleEstimate,
    TargetQuotes,
    TextModel,
    basis,
    least_cap,
)
from convergence.cost_estimate.ranges import UNKNOWN, Range
from convergence_core.budget.bounds import prompt_bound
from convergence_core.config import Configuration
from convergence_core.config.games import REAL_TASK, SANDBOX, is_real_task

if TYPE_CHECKING:
    from tasks.games.configured_games import ConfiguredGame
    from tasks.inputs.environment import Environment
    from tasks.inputs.loader import Loaded

N_PLAYS: Final = 20
"""Random plays of each game, whose prompts and replies are counted."""
USUAL_REPLY: Final = 20
"""Tokens of a usual reply, a move."""
_REPORT: Final = '{"ending": "ok", "reason": "", "value": true}'
"""Report of a program that did not run."""
_CALLS: Final = "game"
"""Purpose of calls in games."""


def rounds_within(configuration: Configuration, n_least: int) -> Range:
    """Return the number of game rounds in a run.

    Args:
        configuration: configuration of the run.
        n_least: least number of generations.
    """
    every = configuration.society.games.every
    if every is None:
        return Range.fixed(0)
    most = max(0, configuration.optimization.evolution.generations - 1) // every
    least = max(0, n_least - 1) // every
    return Range(low=least, expected=(least + most) / 2, high=most)


def looks_within(rounds: Range, n_holdout_cases: int) -> Range:
    """Return the number of held-out cases evaluated in rounds; an unchanged leader repeats none."""
    return rounds * Range(low=0, expected=n_holdout_cases / 2, high=n_holdout_cases)


def game_roles(
    loaded: "Loaded",
    world: "Environment",
    rounds: Range,
    target: TargetQuotes,
    past: Mapping[str, CallHistory],
) -> list[RoleEstimate]:
    """Return the estimates of replies in games, by player; empty without games.

    Args:
        loaded: the configuration and its files.
        world: the prices.
        rounds: number of rounds.
        target: quotes of the system, which may play.
        past: usage of earlier runs of the system, by purpose.

    Raises:
        ConfigurationError: the configuration of a game is wrong.
    """
    configuration = loaded.configuration
    if configuration.society.games.every is None:
        return []
    from tasks.games.configured_games import configured_games  # noqa: PLC0415 - brings NumPy

    if untried := _untried(loaded):
        words = " ".join(untried)
        why = f"no audit of {words} is stored. Run `convergence games audit {words}`."
        return [_unknown(why)]
    games = configured_games(loaded, world, str)
    try:
        return _roles(games, loaded, world, rounds, target, past.get(_CALLS))
    finally:
        for game in games.values():
            game.close()


def _unknown(why: str) -> RoleEstimate:
    return RoleEstimate(
        role="game", name="real tasks", calls=UNKNOWN, tokens=UNKNOWN, usd=UNKNOWN, unknown=why
    )


def _untried(loaded: "Loaded") -> list[str]:
    """Return the generators of real tasks without a stored audit."""
    from tasks.games.reasoning_audits import stored_audit  # noqa: PLC0415 - brings NumPy
    from tasks.games.reasoning_tasks import why_missing  # noqa: PLC0415 - as above
    from tasks.inputs.storage import store_path  # noqa: PLC0415 - brings DuckDB

    wanted = [
        name.removeprefix(REAL_TASK).replace("-", "_")
        for name, config in loaded.configuration.society.games.games.items()
        if is_real_task(name, config)
    ]
    if not wanted or why_missing():
        return []
    return [name for name in wanted if name not in stored_audit(store_path(loaded)).audits]


def _roles(  # noqa: PLR0917 - with one caller
    games: "Mapping[str, ConfiguredGame]",
    loaded: "Loaded",
    world: "Environment",
    rounds: Range,
    target: TargetQuotes,
    past: CallHistory | None,
) -> list[RoleEstimate]:
    from tasks.providers import billing_provider  # noqa: PLC0415 - brings clients

    configuration = loaded.configuration
    settings = configuration.society.games
    assert rounds.high is not None  # noqa: S101 - a number of generations
    share = settings.max_share_usd * rounds.high
    roles = []
    for name in sorted({seat.name for game in games.values() for seat in game.seats.values()}):
        seen = {
            key: [*_plays(game, {role for role, seat in game.seats.items() if seat.name == name})]
            for key, game in games.items()
        }
        calls = _calls(rounds, settings.plays, seen, _most_replies(games, name))
        assert configuration.llm is not None  # noqa: S101 - a model plays
        seller, _ = billing_provider(configuration.llm)
        model = TextModel(name=name, price=world.prices.find(seller, name))
        prompts = {bound for plays in seen.values() for play in plays for bound in play}
        quotes = [model.quote(n, settings.max_tokens, usual=USUAL_REPLY) for n in sorted(prompts)]
        estimate = model.role(
            "game",
            calls,
            quotes,
            past,
            share=settings.max_share_usd,
            lowered_by="society.games.max_tokens",
        )
        roles.append(replace(estimate, share=share))
    if any(game.of_system for game in games.values()):
        seen = {key: [*_plays(game, game.of_system)] for key, game in games.items()}
        most = max(sum(game.game.cost[role] for role in game.of_system) for game in games.values())
        calls = _calls(rounds, settings.plays, seen, most)
        roles.append(
            RoleEstimate(
                role="game",
                name="the system",
                calls=calls,
                tokens=calls * target.over(lambda quote: quote.tokens(None)),
                usd=calls * target.over(lambda quote: quote.usd(None)),
                share=share,
                basis=basis(None),
                least_usd=least_cap(target.all, settings.max_share_usd),
                lowered_by=TARGET_KEY,
            )
        )
    return roles


def _plays(game: "ConfiguredGame", roles: "frozenset[str] | set[str]") -> Iterator[list[int]]:
    """Yield bounds of the prompts of some roles in random plays, in tokens."""
    from convergence_core.games.contract import FixedPlayer, LegalPlayer  # noqa: PLC0415 - brings NumPy
    from convergence_core.games.game import PlayKey  # noqa: PLC0415 - as above
    from convergence_core.games.play import OpenPlay  # noqa: PLC0415 - as above

    chance, executed = LegalPlayer(), FixedPlayer(_REPORT)
    for index in range(N_PLAYS):
        play = OpenPlay(game.game, PlayKey(run_seed=0, round_number=0, index=index))
        prompts = []
        while (ask := play.ask) is not None:
            if ask.role in roles:
                seat = game.seats.get(ask.role)
                texts = [ask.text] if seat is None else [seat.persona, ask.text]
                prompts.append(prompt_bound([{"content": text} for text in texts]) or 0)
            player = executed if ask.role == SANDBOX else chance
            play.reply(player.answer(ask, play.rng(ask.role)))
        yield prompts


def _most_replies(games: "Mapping[str, ConfiguredGame]", name: str) -> int:
    """Return the most replies of a player in one play of any game."""
    return max(
        sum(game.game.cost[role] for role, seat in game.seats.items() if seat.name == name)
        for game in games.values()
    )


def _calls(
    rounds: Range, n_plays: int, seen: Mapping[str, Sequence[Sequence[int]]], most_replies: int
) -> Range:
    """Return the number of replies in all rounds; a round may skip every game."""
    each = [fmean(map(len, plays)) for plays in seen.values()]
    some = 1.0 - 0.5 ** len(seen)
    return rounds * Range(
        low=0, expected=some * n_plays * fmean(each), high=n_plays * most_replies
    )
