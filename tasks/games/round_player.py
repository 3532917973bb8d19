"""Player of one round's games, within a run's limits, ledger and journal.

Replies come from the journal if it holds them. So a round that was killed pays for no reply twice
and ends with the same plays.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, cast

import numpy as np

from convergence_core.errors import CandidateFault, EvaluationFault
from convergence_core.games.game import PlayKey, Scores, Transcript, Turn
from convergence_core.games.held_out import HeldOutError, HeldOutGuard
from convergence_core.games.play import OpenPlay
from convergence_core.games.round_records import PlayRecord, PlayStatus
from convergence_core.ports import Ask
from convergence_core.records import Json
from tasks.calls.metric_calls import PaidCall
from tasks.calls.model_calls import AskModel
from tasks.games.configured_games import ConfiguredGame
from tasks.games.own_games import OwnGameError
from tasks.games.sandbox import SandboxUnavailableError
from tasks.json_values import as_text
from tasks.rlp.learner_calls import LearnerCalls
from tasks.secrets.redaction import one_line, redact_json

LONGEST_REASON: Final = 200
_SHARE: Final = "society.games.max_share_usd"
NO_MONEY: Final = "budget"
"""Error type of a call that exceeds the budget."""


class RoundPlayer:
    """Plays the games of one round; for one thread only."""

    def __init__(
        self,
        calls: LearnerCalls,
        guard: HeldOutGuard,
        redact: Callable[[str], str],
        *,
        run_seed: int,
        round_number: int,
        n_at_once: int,
        ask_system: Callable[[Ask], PaidCall] | None = None,
    ) -> None:
        self._calls, self._guard, self._redact = calls, guard, redact
        self._run_seed, self._round, self._n_at_once = run_seed, round_number, n_at_once
        self._ask_system = ask_system
        self.limit: str | None = None
        """Limit that stops further plays; ``None`` while none does."""

    def play(self, game: ConfiguredGame, n_plays: int) -> list[PlayRecord]:
        """Play a game several times, concurrently; fewer times if the budget reaches a limit."""
        scope = f"games/r{self._round}/{game.game.id}/v{game.game.version}"

        async def work(ask_model: AskModel) -> list[PlayRecord]:
            free = asyncio.Semaphore(self._n_at_once)
            tasks = [self._within(free, game, index, ask_model) for index in range(n_plays)]
            return [
                transcript for transcript in await asyncio.gather(*tasks) if transcript is not None
            ]

        return self._calls.run(work, 0, scope=scope)

    async def _within(
        self, free: asyncio.Semaphore, game: ConfiguredGame, index: int, ask_model: AskModel
    ) -> PlayRecord | None:
        async with free:
            return None if self.limit is not None else await self._played(game, index, ask_model)

    async def _played(self, game: ConfiguredGame, index: int, ask_model: AskModel) -> PlayRecord:
        # Threads: a user's game runs in another process, and other plays must not wait for it.
        key = PlayKey(run_seed=self._run_seed, round_number=self._round, index=index)
        play = await asyncio.to_thread(_Play, game, key, self._redact)
        while (ask := play.ask) is not None:
            try:
                self._guard.check([ask.text])
                reply = await self._reply(play, ask, ask_model)
            except HeldOutError as error:
                return play.ended("void", str(error))
            except CandidateFault as fault:
                # The model's fault: an empty, refused or truncated answer is played as an empty
                # reply.
                play.pay(None if fault.billed is None else fault.billed.cost_usd)
                reply = ""
            except EvaluationFault as fault:
                if fault.billed is not None:
                    play.pay(fault.billed.cost_usd)
                why = str(fault)
                if fault.error_type == NO_MONEY:
                    self.limit = self.limit or limit_words(why)
                    why = "its call would exceed the round's share"
                return play.ended("lost", f"`{ask.role}` gave no reply: {why}")
            except SandboxUnavailableError as error:
                return play.ended("lost", str(error))
            await asyncio.to_thread(play.reply, reply)
        return await asyncio.to_thread(play.record)

    async def _reply(self, play: "_Play", ask: Ask, ask_model: AskModel) -> str:
        seat = play.game.seats.get(ask.role)
        call: Callable[[Ask], PaidCall] | None = None if seat is None else seat.call
        if ask.role in play.game.of_system:
            call = self._ask_system
        if call is None:
            player = play.game.players[ask.role]
            return await asyncio.to_thread(player.answer, ask, play.rng(ask.role))
        reply, _ = await ask_model(call(ask), f"{play.key.index}/{len(play.turns)}")
        play.pay(reply.cost_usd)
        text = as_text(reply.value)
        return self._redact(text.encode("utf-8", "replace").decode("utf-8"))


def limit_words(error: str) -> str:
    """Return the budget limit reached, and the key that sets a round's share of it."""
    reached = error.partition(". ")[0]
    return reached if _SHARE in reached else f"{reached} (`{_SHARE}` is a round's share)"


class _Play:
    """One play; any error that the game raises makes it void, with the reason."""

    def __init__(self, game: ConfiguredGame, key: PlayKey, redact: Callable[[str], str]) -> None:
        self.game, self.key, self._redact = game, key, redact
        self._n_calls, self._cost_usd = 0, cast("float | None", 0.0)
        self._broken = ""
        self._open: OpenPlay | None = None
        self._guarded(lambda: setattr(self, "_open", OpenPlay(game.of_play(key.index), key)))

    @property
    def ask(self) -> Ask | None:
        """Prompt that waits for a reply; ``None`` if the play has ended."""
        return None if self._broken or self._open is None else self._open.ask

    @property
    def turns(self) -> Sequence[Turn]:
        """Turns so far."""
        return () if self._open is None else self._open.turns

    def rng(self, role: str) -> np.random.Generator:
        """Return the role's generator: see ``OpenPlay``."""
        assert self._open is not None  # noqa: S101 - it asks
        return self._open.rng(role)

    def pay(self, cost_usd: float | None) -> None:
        """Add the cost of a call; ``None`` if it is unknown."""
        self._n_calls += 1
        known = self._cost_usd is not None and cost_usd is not None
        self._cost_usd = (self._cost_usd or 0.0) + (cost_usd or 0.0) if known else None

    def reply(self, text: str) -> None:
        """Pass the reply to the current prompt."""
        going = self._open
        assert going is not None  # noqa: S101 - it asks
        self._guarded(lambda: going.reply(text))

    def record(self) -> PlayRecord:
        """Return the finished play."""
        going = self._open
        if self._broken or going is None:
            return self.ended("void", self._broken)
        transcripts: list[Transcript] = []
        self._guarded(lambda: transcripts.append(going.transcript()))
        if not transcripts:
            return self.ended("void", self._broken)
        (seen,) = transcripts
        status: PlayStatus = "void" if seen.scores.is_void else "played"
        return self.ended(status, seen.scores.reason, seen)

    def ended(
        self,
        status: PlayStatus,
        reason: str,
        seen: Transcript | None = None,
    ) -> PlayRecord:
        """Return the play as the store holds it."""
        shown = [
            replace(
                turn,
                ask=Ask(role=turn.ask.role, text=self._redact(turn.ask.text)),
                reply=self._redact(turn.reply),
            )
            for turn in (self.turns if seen is None else seen.turns)
        ]
        kept = redact_json({} if seen is None else dict(seen.facts), self._redact)
        return PlayRecord(
            game=self.game.game.id,
            version=self.game.game.version,
            key=self.key,
            status=status,
            scores=Scores(
                by_role={} if seen is None else seen.scores.by_role,
                reason=one_line(reason, LONGEST_REASON, self._redact),
            ),
            players=self.game.names,
            turns=tuple(shown),
            facts=cast("dict[str, Json]", kept),
            n_calls=self._n_calls,
            cost_usd=self._cost_usd,
        )

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except OwnGameError as error:
            self._broken = str(error)
        except Exception as error:  # noqa: BLE001 - raised by a built-in game
            self._broken = f"the game raised {type(error).__name__}: {error}"
