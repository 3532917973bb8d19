"""Round of language games: a plan, then plays.

The run's row stores the round's number and each game's number of plays before the first play. All
plays are published together. After a kill the round continues with the same plan and reads paid
answers from the journal.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, asdict, dataclass, replace
from typing import Any, Final

from convergence_core.config.games import ANSWER_GAMES
from convergence_core.games.held_out import HeldOutGuard
from convergence_core.games.meta_critic import DROPPED, GameEffect
from convergence_core.games.offer import unavailable_games
from convergence_core.games.registry import count_plays
from convergence_core.games.round_records import CoinRecord, GamesReport, PlayRecord
from convergence_core.ports import Ask, Row
from convergence_core.records import Candidate, Case, Json, canonical_json, fields_of
from convergence_core.sao.prompt_shape import shape_of
from tasks.calls.metric_calls import PaidCall
from tasks.calls.model_calls import GAME
from tasks.games.configured_games import ConfiguredGame, missing_system_error
from tasks.games.game_cases import game_effects
from tasks.games.games_report import report_of
from tasks.games.round_player import RoundPlayer
from tasks.games.round_rows import (
    COINS_TAG,
    coin_rows,
    play_rows,
    price_of_plays,
    round_row,
    round_rows,
    system_of,
)
from tasks.inputs.loader import Loaded
from tasks.json_values import answers_of, as_text
from tasks.rlp.learner_calls import LearnerCalls
from tasks.run.judged_plays import MOST_ITEMS, NO_ITEMS, JudgedPlays, asks_of_answers
from tasks.run.publication import generation_tables
from tasks.run.run import Run
from tasks.secrets.redaction import secret_name

_ROUNDS: Final[dict[str, "GamesRound"]] = {}
"""Run → its round, for tasks whose parameters are ids."""


@dataclass(eq=False, repr=False)
class GamesRound:
    """A round in progress; ``tasks.run.games_opener`` opens one.

    Args:
        run: run with limits, ledger and journal.
        games: configured games.
        calls: calls of the players' models.
        redact: removes secrets before storage.
        incumbent: candidate that plays as the system; ``None`` if there is none.
    """

    run: Run
    games: Mapping[str, ConfiguredGame]
    calls: LearnerCalls
    redact: Callable[[str], str]
    _: KW_ONLY
    incumbent: Candidate | None

    def __post_init__(self) -> None:
        """Read what earlier rounds and this one have fixed."""
        run = self.run
        self.settings = run.configuration.society.games
        system = system_of(run.record)
        past = round_rows(run.store, system)
        self.is_finished = any(row["run_id"] == run.run_id for row in past)
        """Whether its plays are published, as after a late kill."""
        text = run.record.tags.get(COINS_TAG)
        self._fixed: dict[str, Any] | None = None if text is None else json.loads(text)
        """Plan of the round before it was killed; ``None`` for a new round."""
        self.number = (
            1 + max((row["round"] for row in past if row["run_id"] != run.run_id), default=-1)
            if self._fixed is None
            else int(self._fixed["round"])
        )
        self.coins: tuple[CoinRecord, ...] = ()
        self._items: tuple[str, ...] = ()
        self._judge = JudgedPlays(run)
        self._plays: list[PlayRecord] = []
        self._limit: str | None = None
        self._player = RoundPlayer(
            self.calls,
            HeldOutGuard(_held_out_texts(run.loaded)),
            self.redact,
            run_seed=run.record.seed,
            round_number=self.number,
            n_at_once=self.settings.n_at_once,
            ask_system=self._system_call(),
        )

    @property
    def run_id(self) -> str:
        """Id of the run that holds the round."""
        return self.run.run_id

    @property
    def planned(self) -> list[CoinRecord]:
        """Games with plays."""
        return [coin for coin in self.coins if coin.n_plays]

    # -- course of the round

    def plan(self) -> tuple[CoinRecord, ...]:
        """Plan the plays of each game; a resumed round keeps its plan.

        Raises:
            StoreError: the plan cannot be stored, so no game may be played.
        """
        run = self.run
        if self._fixed is None:
            self.coins = self._plan()
            coins: list[Json] = [asdict(coin) for coin in self.coins]
            text = canonical_json(
                {
                    "round": self.number,
                    "coins": coins,
                    "items": [*self._items],
                }
            )
            run.record = replace(run.record, tags={**run.record.tags, COINS_TAG: text})
            run.save("running")
        else:
            self.coins = tuple(CoinRecord.from_json(coin) for coin in self._fixed["coins"])
            self._items = tuple(self._fixed.get("items", ()))
        if self._items:
            self.games = {**self.games, **self._judge.dealt(self.games, self._items)}
        return self.coins

    def play(self, name: str) -> int:
        """Play a game its planned number of times; return the number of finished plays.

        Raises:
            RunInterruptedError: the run received a stop request.
        """
        self.run.check_stop()
        n_plays = next(coin.n_plays for coin in self.coins if coin.game == name)
        if self._limit is not None:
            return 0
        played = self._player.play(self.games[name], n_plays)
        self.run.check_stop()
        self._limit = self._player.limit
        self._plays += played
        return len(played)

    def finish(self) -> GamesReport:
        """Publish the round and return its report.

        Raises:
            StoreWriteError: the round is not visible; the next command continues it.
        """
        run = self.run
        if not self.is_finished:
            is_partial, learned = self._limit is not None, [self._tables()]
            tables = generation_tables(run, 0, learned, partial=is_partial, flow_run_id=None)
            run.store.publish(run.run_id, 0, tables)
        run.save("done", self._limit or "the round was played")
        return report_of(run.store, run.record)

    # -- parts

    def _system_call(self) -> Callable[[Ask], PaidCall] | None:
        """Return a function that calls the system as one of its test cases does.

        ``None`` if the system plays no role.

        Raises:
            ConfigurationError: its test cases do not show where the prompt belongs, or there is no
                incumbent.
        """
        if not any(game.of_system for game in self.games.values()):
            return None
        shape, incumbent = shape_of(self.run.loaded.cases), self.incumbent
        if shape is None or incumbent is None:
            raise missing_system_error(self.games)
        api = self.run.configuration.api
        return lambda ask: PaidCall.of_target(
            self.run.session.target,
            incumbent.params,
            Case(case_id="game", input=shape.input(ask.text)),
            purpose=GAME,
            credential=secret_name(api),
            timeout_s=api.request.timeout_seconds,
        )

    def _plan(self) -> tuple[CoinRecord, ...]:
        run, games = self.run, [game.game for game in self.games.values()]
        system = system_of(run.record)
        state, audited = self._judge.after_plays()
        items = self._judge.items(MOST_ITEMS, audited) if asks_of_answers(self.games) else []
        self._items = tuple(item.item_id for item in items)
        known = game_effects(run.store, system)
        effect_of = {game.id: known.get(game.id, GameEffect.prior()) for game in games}
        off = unavailable_games(
            games, trust=state.trust, gains=self._judge.gains(self.games), effects=known
        ) | {
            name: game.off_reason
            for name, game in self.games.items()
            if game.off_reason is not None
        }
        off |= {name: NO_ITEMS for name in asks_of_answers(self.games) if not items}
        on = [game for game in games if game.id not in off]
        price = price_of_plays(run.store, system)
        n_plays = count_plays(
            on,
            self.settings.plays,
            p_keep={game.id: max(DROPPED, effect_of[game.id].p_keep) for game in on},
            price_usd={game.id: price.get(game.id, 0.0) for game in on},
        )
        return tuple(
            CoinRecord(
                game=game.id,
                **fields_of(game, "version", "feeds", "grounded"),
                p_keep=None if game.id not in known else known[game.id].p_keep,
                probability=effect_of[game.id].probability if game.feeds == "hard_cases" else None,
                n_plays=min(n_plays.get(game.id, 0), len(items))
                if game.id in ANSWER_GAMES
                else n_plays.get(game.id, 0),
                off_reason=off.get(game.id),
            )
            for game in games
        )

    def _tables(self) -> dict[str, Sequence[Row]]:
        run_id, seed, n_plays = self.run_id, self.run.record.seed, len(self._plays)
        totals = self.run.journal.totals(self.run_id)
        cost = None if totals.n_unpriced else totals.cost_usd or 0.0
        return {
            "game_rounds": [round_row(run_id, self.number, seed, n_plays, cost, self._limit)],
            "game_coins": coin_rows(run_id, self.number, self.coins),
            "game_plays": play_rows(run_id, self._plays),
        }


def _held_out_texts(loaded: Loaded) -> Iterator[str]:
    for case in loaded.holdout_cases:
        values = [*case.input.values()] if isinstance(case.input, dict) else [case.input]
        yield from (as_text(value) for value in values)
        if case.expected is not None:
            yield from map(as_text, answers_of(case.expected))


def games_round_of(run_id: str) -> GamesRound:
    """Return a round that this process holds open.

    Raises:
        KeyError: there is no such round.
    """
    return _ROUNDS[run_id]


@contextmanager
def held_open(opened: GamesRound) -> Iterator[GamesRound]:
    """Register a round by its run's id for the block."""
    _ROUNDS[opened.run_id] = opened
    try:
        yield opened
    finally:
        del _ROUNDS[opened.run_id]
