"""Seeded plays of language games.

Each play has its own seed, a hash of (run seed, game, version, round, index). The protocol and
each role have streams spawned from it. So the plays of one game do not depend on other games,
their order, or the process.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from convergence_core.games.game import Facts, Game, PlayKey, Transcript, Turn
from convergence_core.ports import Ask, Player
from convergence_core.records import canonical_json, sha256_hex

MOST_CHARACTERS: Final = 20_000
"""Maximum characters of a reply; a longer one counts as empty."""


class GameRuleError(ValueError):
    """A game breaks its own declaration: it uses an unknown role, or asks too often."""


def seed_of(game: Game, key: PlayKey) -> int:
    """Return the seed of one play, in [0, 2^128)."""
    identity = [key.run_seed, game.id, game.version, key.round_number, key.index]
    return int(sha256_hex(canonical_json(identity))[:32], 16)


class OpenPlay:
    """A play in progress: ``ask`` waits for a reply, and is ``None`` after the end.

    Players may be slow: pass each reply when it arrives.

    Raises:
        GameRuleError: the game breaks its own declaration.
    """

    def __init__(self, game: Game, key: PlayKey) -> None:
        self.game = game
        self.key = key
        streams = np.random.SeedSequence(seed_of(game, key)).spawn(1 + len(game.roles))
        protocol, *roles = (np.random.default_rng(stream) for stream in streams)  # noqa: TID251 - functions of the seed
        self._rngs = dict(zip(game.roles, roles, strict=True))
        self._left = dict(game.cost)
        self.turns: list[Turn] = []
        """Turns so far."""
        self._protocol = game.protocol(protocol)
        self._facts: Facts = {}
        self.ask: Ask | None = None
        self._go_on(None)

    def rng(self, role: str) -> np.random.Generator:
        """Return the stream for a role's replies."""
        return self._rngs[role]

    def reply(self, text: str) -> None:
        """Hand in the reply to ``ask``; one of more than ``MOST_CHARACTERS`` counts as empty.

        Raises:
            GameRuleError: the game breaks its own declaration.
        """
        assert self.ask is not None, "the play has ended"  # noqa: S101 - a caller's mistake
        kept = text if len(text) <= MOST_CHARACTERS else ""
        self.turns.append(Turn(self.ask, kept))
        self._go_on(kept)

    def transcript(self) -> Transcript:
        """Return the play, which has ended, with its scores.

        Raises:
            GameRuleError: a score is no finite number.
        """
        scores = self.game.score(tuple(self.turns), self._facts)
        for role, value in scores.by_role.items():
            if role not in self.game.roles or not np.isfinite(value):
                raise GameRuleError(
                    f"`{self.game.id}` must give its roles finite scores, but gave "
                    f"`{role}` {value}"
                )
        return Transcript(
            game=self.game.id,
            version=self.game.version,
            key=self.key,
            turns=tuple(self.turns),
            facts=self._facts,
            scores=scores,
        )

    def _go_on(self, reply: str | None) -> None:
        try:
            ask = next(self._protocol) if reply is None else self._protocol.send(reply)
        except StopIteration as end:
            self.ask, self._facts = None, end.value or {}
            return
        if self._left.get(ask.role, 0) < 1 or ask.role not in self._rngs:
            raise GameRuleError(
                f"`{self.game.id}` may ask `{ask.role}` {self.game.cost.get(ask.role, 0)} times a "
                "play, but asks once more. Raise its `cost`, or ask less."
            )
        self._left[ask.role] -= 1
        self.ask = ask


def play(game: Game, players: Mapping[str, Player], key: PlayKey) -> Transcript:
    """Play once and return the transcript.

    Args:
        game: what is played.
        players: role → who answers, all roles of the game.
        key: which play it is.

    Raises:
        GameRuleError: the game breaks its own declaration.
        InfrastructureFault: a player could not answer.
    """
    going = OpenPlay(game, key)
    while (ask := going.ask) is not None:
        going.reply(players[ask.role].answer(ask, going.rng(ask.role)))
    return going.transcript()
