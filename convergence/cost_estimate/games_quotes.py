"""Quotes of rounds of games: looks at held-out cases, replies of models.

Half of the games are expected in a round, as the first coins have it. How long prompts are, and how many
replies a play takes, is that of plays by chance; nobody is asked.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
"""Plays by chance of each game, of which prompts and replies are counted."""
USUAL_REPLY: Final = 20
"""Tokens of a reply: most are a move."""
_REPORT: Final = '{"ending": "ok", "reason": "", "value": true}'
"""Of a program: none is executed here."""
_CALLS: Final = "game"
"""Purpose of their calls."""


def rounds_within(configuration: Configuration, n_least: int) -> Range:
    """Return how many rounds of games a run plays.

    Args:
        configuration: of the run.
        n_least: generations that it has at least.
    """
    every = configuration.society.games.every
    if every is None:
        return Range.fixed(0)
    most = max(0, configuration.optimization.evolution.generations - 1) // every
    least = max(0, n_least - 1) // every
    return Range(low=least, expected=(least + most) / 2, high=most)


def looks_within(rounds: Range, n_holdout_cases: int) -> Range:
    """Return how many held-out cases their looks ask: none again of a leader that has stayed."""
    return rounds * Range(low=0, expected=n_holdout_cases / 2, high=n_holdout_cases)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a play by chance asked of one player."""

    n_calls: int
    prompts: tuple[int, ...]
    """Their bounds, in tokens."""


def game_roles(
    loaded: "Loaded",
    world: "Environment",
    rounds: Range,
    target: TargetQuotes,
    past: Mapping[str, CallHistory],
) -> list[RoleEstimate]:
    """Return what replies in games would cost, by who plays; empty where a run plays none.

    Args:
        loaded: the configuration and its files.
        world: knows prices.
        rounds: how many there are.
        target: the system, which may play.
        past: what earlier runs of the system used, by purpose.

    Raises:
        ConfigurationError: a game cannot be played as it is configured.
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
        for one in games.values():
            one.close()


def _unknown(why: str) -> RoleEstimate:
    return RoleEstimate(
        role="game", name="real tasks", calls=UNKNOWN, tokens=UNKNOWN, usd=UNKNOWN, unknown=why
    )


def _untried(loaded: "Loaded") -> list[str]:
    """Return the generators of real tasks that no audit is stored of; an estimate tries and writes nothing."""
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
    return [name for name in wanted if name not in stored_audit(store_path(loaded)).found]


def _roles(  # noqa: PLR0917 - of one place
    games: "Mapping[str, ConfiguredGame]",
    loaded: "Loaded",
    world: "Environment",
    rounds: Range,
    target: TargetQuotes,
    of_role: CallHistory | None,
) -> list[RoleEstimate]:
    from tasks.providers import billing_provider  # noqa: PLC0415 - brings clients

    configuration = loaded.configuration
    settings = configuration.society.games
    assert rounds.high is not None  # noqa: S101 - numbers of generations
    share = settings.max_share_usd * rounds.high
    roles = []
    for name in sorted({seat.name for one in games.values() for seat in one.seats.values()}):
        seen = {
            game: [*_seen(one, {role for role, seat in one.seats.items() if seat.name == name})]
            for game, one in games.items()
        }
        calls = _calls(rounds, settings.plays, seen, _most_replies(games, name))
        assert configuration.llm is not None  # noqa: S101 - a model plays
        seller, _ = billing_provider(configuration.llm)
        model = TextModel(name=name, price=world.prices.find(seller, name))
        prompts = {bound for plays in seen.values() for one in plays for bound in one.prompts}
        quotes = [model.quote(n, settings.max_tokens, usual=USUAL_REPLY) for n in sorted(prompts)]
        found = model.role(
            "game",
            calls,
            quotes,
            of_role,
            share=settings.max_share_usd,
            lowered_by="society.games.max_tokens",
        )
        roles.append(replace(found, share=share))
    if any(one.of_system for one in games.values()):
        seen = {game: [*_seen(one, one.of_system)] for game, one in games.items()}
        most = max(sum(one.game.cost[role] for role in one.of_system) for one in games.values())
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


def _seen(one: "ConfiguredGame", roles: "frozenset[str] | set[str]") -> Iterator[_Seen]:
    """Yield what plays by chance ask of some roles."""
    from convergence_core.games.contract import FixedPlayer, LegalPlayer  # noqa: PLC0415 - brings NumPy
    from convergence_core.games.game import PlayKey  # noqa: PLC0415 - as above
    from convergence_core.games.play import OpenPlay  # noqa: PLC0415 - as above

    chance, executed = LegalPlayer(), FixedPlayer(_REPORT)
    for index in range(N_PLAYS):
        going = OpenPlay(one.game, PlayKey(run_seed=0, round_number=0, index=index))
        prompts = []
        while (ask := going.ask) is not None:
            if ask.role in roles:
                seat = one.seats.get(ask.role)
                texts = [ask.text] if seat is None else [seat.persona, ask.text]
                prompts.append(prompt_bound([{"content": text} for text in texts]) or 0)
            player = executed if ask.role == SANDBOX else chance
            going.reply(player.answer(ask, going.rng(ask.role)))
        yield _Seen(n_calls=len(prompts), prompts=tuple(prompts))


def _most_replies(games: "Mapping[str, ConfiguredGame]", name: str) -> int:
    """Return the replies of a player that one play takes at most, of the dearest game."""
    return max(
        sum(one.game.cost[role] for role, seat in one.seats.items() if seat.name == name)
        for one in games.values()
    )


def _calls(
    rounds: Range, n_plays: int, seen: Mapping[str, Sequence[_Seen]], most_replies: int
) -> Range:
    """Return how many replies the rounds take; every round may leave every game out."""
    each = [fmean(one.n_calls for one in plays) for plays in seen.values()]
    some = 1.0 - 0.5 ** len(seen)
    return rounds * Range(
        low=0, expected=some * n_plays * fmean(each), high=n_plays * most_replies
    )
