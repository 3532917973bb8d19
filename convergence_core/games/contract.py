"""Contract of games: rules for every game, including the user's.

``broken_rules`` plays a game with legal, empty and garbage replies, and returns a sentence for
each broken rule. Use it in a test of your game:

    assert broken_rules(MyGame()) == []
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import numpy as np

from convergence_core.games.game import Feed, Game, PlayKey, Transcript
from convergence_core.games.play import GameRuleError, play
from convergence_core.ports import Ask, Player

N_PLAYS: Final = 5
ID: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")
"""Pattern of a game's id."""
GARBAGE: Final = (
    "",
    " \n\t",
    "I do not know.",
    "\x00\ud800",
    "null",
    "[]",
    "{}",
    '{"p": NaN, "forecast": [[Infinity]], "regions": {"a": 1}, "ending": 3}',
    "[" * 5_000,
    "9" * 15_000,
    "a " * 10_001,
)
"""Replies at which no game may fail."""


class FixedPlayer:
    """Player with a constant reply."""

    def __init__(self, text: str) -> None:
        self.text = text

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:  # noqa: ARG002 - the port's signature
        """Return the reply."""
        return self.text


class LegalPlayer:
    """Player that draws a legal option at random, or a number in [0, 1) if any text is legal."""

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:
        """Draw a reply."""
        if ask.options:
            return ask.options[int(rng.integers(len(ask.options)))]
        return f"{rng.random():.3f}"


def broken_rules(game: Game, players: Mapping[str, Player] | None = None) -> list[str]:
    """Return a sentence for each rule that a game breaks; empty if it keeps all.

    Args:
        game: Game to check.
        players: role → a player of sensible replies, for roles that need more than a legal option
            or a number, such as one that measures.
    """
    broken = list(_of_declaration(game))
    if broken:
        return broken
    sensible: dict[str, Player] = {role: LegalPlayer() for role in game.roles}
    sensible.update(players or {})
    return list(_of_plays(game, sensible))


def _of_declaration(game: object) -> Iterator[str]:
    if not isinstance(game, Game):
        yield "a game must have id, version, roles, cost, feeds, grounded, protocol and score"
        return
    declared: Any = game  # a user's game may break every annotation
    if not isinstance(declared.id, str) or not ID.fullmatch(declared.id):
        yield f"`id` must be lower-case letters, digits and `-`, but is {declared.id!r}"
    if not isinstance(declared.version, int) or declared.version < 1:
        yield f"`version` must be 1 or more, but is {declared.version!r}"
    if not declared.roles or len(set(declared.roles)) < len(declared.roles):
        yield f"`roles` must name each role once, but are {declared.roles!r}"
    if set(declared.cost) != set(declared.roles) or any(n < 1 for n in declared.cost.values()):
        yield f"`cost` must give the calls of each role in a play, but is {dict(declared.cost)!r}"
    if declared.feeds not in get_args(Feed):
        yield f"`feeds` must be one of {', '.join(get_args(Feed))}, but is {declared.feeds!r}"
    if not isinstance(declared.grounded, bool):
        yield f"`grounded` must be True or False, but is {declared.grounded!r}"


def _of_plays(game: Game, sensible: Mapping[str, Player]) -> Iterator[str]:
    tables = [("sensible replies", sensible)]
    for text in GARBAGE:
        shown = f"the reply {text[:16]!r}"
        # Each role alone replies with garbage, then all of them do.
        tables += [
            (f"{shown} of `{role}`", {**sensible, role: FixedPlayer(text)}) for role in game.roles
        ]
        tables.append((f"{shown} of all", dict.fromkeys(game.roles, FixedPlayer(text))))
    for name, players in tables:
        reason = _why_broken(game, players)
        if reason:
            yield f"with {name}: {reason}"


def _why_broken(game: Game, players: Mapping[str, Player]) -> str:
    for index in range(N_PLAYS):
        key = PlayKey(run_seed=1, round_number=0, index=index)
        try:
            transcript, again = play(game, players, key), play(game, players, key)
            difference = _difference(game, transcript, again)
        except GameRuleError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - whatever a game raises breaks the contract
            return f"it raises {type(error).__name__}: {error}"
        if difference:
            return difference
    return ""


def _difference(game: Game, transcript: Transcript, again: Transcript) -> str:
    if transcript.sha256 != again.sha256:
        return "two plays with one seed must be equal; sample only from `rng`"
    if (
        transcript.scores != again.scores
        or game.score(transcript.turns, transcript.facts) != transcript.scores
    ):
        return "the score must be a function of turns and facts alone"
    if transcript.scores.is_void and not transcript.scores.reason:
        return "a play without a score must give its reason"
    return ""
