"""Round of language games: a look at held-out cases, coins, plays.

The look is at the incumbent: the champion, or else the defaults. So the change that a round is followed by is
known before the next one: its look less this one's, paired by case. The run's row
fixes number, coins and plays of each game before the first play. All plays are published at once; after a kill
the round continues with the same coins and reads paid answers from the journal.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, Final

import numpy as np

from convergence_core.config.games import ANSWER_GAMES
from convergence_core.errors import EvaluatorFault
from convergence_core.games.held_out import HeldOutError, HeldOutGuard
from convergence_core.games.meta_critic import Coin, p_keep_of, toss
from convergence_core.games.offer import unavailable_games
from convergence_core.games.registry import count_plays
from convergence_core.games.round_records import (
    CoinRecord,
    GamesReport,
    HeldOutLook,
    PlayRecord,
    rounds_with_change,
)
from convergence_core.ports import Ask, Row, WorstCase
from convergence_core.records import (
    Assignment,
    Candidate,
    Case,
    Cell,
    Json,
    Trial,
    canonical_json,
    sha256_hex,
)
from convergence_core.sao.prompt_shape import shape_of
from convergence_core.search.study import limit_reached
from tasks.calls.metric_calls import PaidCall
from tasks.calls.model_calls import GAME
from tasks.games.configured_games import ConfiguredGame, missing_system_error
from tasks.games.games_report import report_of
from tasks.games.round_player import RoundPlayer, limit_words
from tasks.games.round_rows import (
    COINS_TAG,
    coin_rows,
    past_rounds,
    play_rows,
    price_of_plays,
    round_row,
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


class GamesRound:
    """A round in progress; ``tasks.run.games_opener`` opens one.

    Args:
        run: its limits, ledger and journal.
        games: that may be played.
        calls: of the models that play.
        redact: keeps secrets out of what is stored.
        incumbent: who is looked at, and plays as the system; ``None`` if no one.
    """

    def __init__(
        self,
        run: Run,
        games: Mapping[str, ConfiguredGame],
        calls: LearnerCalls,
        redact: Callable[[str], str],
        *,
        incumbent: Candidate | None,
    ) -> None:
        self.run, self.games, self.incumbent = run, games, incumbent
        self.settings = run.configuration.society.games
        self._calls = calls
        system = system_of(run.record)
        past = past_rounds(run.store, system)
        self.is_finished = any(record.run_id == run.run_id for record in past)
        """Whether its plays are published: it was killed after that."""
        self.past = [record for record in past if record.run_id != run.run_id]
        text = run.record.tags.get(COINS_TAG)
        self._fixed: dict[str, Any] | None = None if text is None else json.loads(text)
        """What the round had fixed before it was killed."""
        self.number = (
            1 + max((record.round_number for record in self.past), default=-1)
            if self._fixed is None
            else int(self._fixed["round"])
        )
        self.look: HeldOutLook | None = None
        self.coins: tuple[CoinRecord, ...] = ()
        self._items: tuple[str, ...] = ()
        self._judge = JudgedPlays(run)
        self._trials: list[Trial] = []
        self._plays: list[PlayRecord] = []
        self._limit: str | None = None
        self._player = RoundPlayer(
            calls,
            HeldOutGuard(_held_out_texts(run.loaded)),
            redact,
            run_seed=run.record.seed,
            round_number=self.number,
            n_at_once=self.settings.n_at_once,
            ask_system=self._system_call(),
        )

    @property
    def run_id(self) -> str:
        """Of the run that holds the round."""
        return self.run.run_id

    @property
    def included(self) -> list[CoinRecord]:
        """Games that the coins included, and that were given plays."""
        return [coin for coin in self.coins if coin.is_included and coin.n_plays]

    # -- the story

    def take_look(self) -> HeldOutLook:
        """Look at the incumbent's answers to held-out cases, once; an unchanged incumbent keeps its earlier answers.

        Raises:
            HeldOutError: the round's look was taken before.
            RunInterruptedError: the run was asked to stop.
        """
        if any(record.round_number == self.number for record in self.past):
            raise HeldOutError(
                f"the held-out cases were evaluated in round {self.number} already; a round does it once"
            )
        incumbent = self.incumbent
        cases = [case.case_id for case in self.run.loaded.holdout_cases]
        name = "" if incumbent is None else incumbent.candidate_id
        before = self.past[-1].look if self.past else None
        trial = None
        if (
            before is not None
            and before.candidate_id == name
            and before.rewards.keys() == {*cases}
        ):
            self.look = replace(before, is_new=False)
        elif incumbent is not None and cases:
            trial = self._evaluate_incumbent(incumbent)
        if trial is not None:
            self._trials = [trial]
            reached = limit_reached([trial])
            self._limit = None if reached is None else limit_words(reached)
            rewards = {e.cell.case_id: e.reward for e in trial.evaluations if e.reward is not None}
            self.look = HeldOutLook(
                candidate_id=name, rewards=rewards, n_cases=len(cases), is_new=True
            )
        self.look = self.look or HeldOutLook(
            candidate_id=name, rewards={}, n_cases=0, is_new=False
        )
        return self.look

    def toss_coins(self) -> tuple[CoinRecord, ...]:
        """Fix which games the round plays, and how often; what a killed round had fixed stays.

        Raises:
            StoreError: nothing may be played then.
        """
        run = self.run
        if self._fixed is None:
            self.coins = self._tossed()
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
        """Play a game as often as it was given; return how many plays ended.

        Raises:
            RunInterruptedError: the run was asked to stop.
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
        """Publish the round and return what it did.

        Raises:
            StoreWriteError: nothing of it is visible then; the round goes on with the next command.
        """
        run = self.run
        if not self.is_finished:
            self._publish()
        run.save("done", self._limit or "the round was played")
        return report_of(run.store, run.record)

    # -- parts

    def _evaluate_incumbent(self, incumbent: Candidate) -> Trial | None:
        """Return the incumbent's answers to held-out cases; ``None``: the round's share has no room for them."""
        run, budget = self.run, self._calls.budget
        cases, n_calls = run.loaded.holdout_cases, run.study.schedule.calls_per_cell
        # The most that the answers may cost, as far as it is known; judges are left out.
        worst_usd = [run.session.target.worst_case(incumbent.params, case).usd for case in cases]
        worst = WorstCase(usd=sum(usd or 0.0 for usd in worst_usd))
        try:
            reserved = budget.reserve(worst, n_calls=len(cases) * n_calls)
        except EvaluatorFault as fault:
            self._limit = limit_words(str(fault))
            return None
        cells = tuple(
            Cell(candidate_id=incumbent.candidate_id, case_id=case.case_id, role="holdout")
            for case in cases
        )
        trial = run.evaluate(
            Assignment(candidate=incumbent, cells=cells, label="look at held-out cases"),
            0,
        )
        run.check_stop()
        budget.settle(reserved, self._price_of(trial))
        return trial

    def _price_of(self, trial: Trial) -> float | None:
        """Return what a look has cost with its judges; ``None`` if a price is unknown."""
        eval_ids = {evaluation.eval_id for evaluation in trial.evaluations}
        ledger = self.run.journal.attempts(self.run_id, generation=0)
        paid = [row["cost_usd"] for row in ledger if row["eval_id"] in eval_ids]
        return None if None in paid else sum(float(str(usd)) for usd in paid)

    def _system_call(self) -> Callable[[Ask], PaidCall] | None:
        """Return what makes a call of the system, asked as one of its test cases asks it.

        ``None`` means that it plays no role.

        Raises:
            ConfigurationError: its test cases do not show how it is asked a text, or there is no incumbent.
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

    def _tossed(self) -> tuple[CoinRecord, ...]:
        games = [game.game for game in self.games.values()]
        state, audited = self._judge.after_plays()
        items = self._judge.items(MOST_ITEMS, audited) if asks_of_answers(self.games) else []
        self._items = tuple(item.item_id for item in items)
        off = unavailable_games(games, trust=state.trust, gains=self._judge.gains(self.games)) | {
            name: game.off_reason
            for name, game in self.games.items()
            if game.off_reason is not None
        }
        off |= {name: NO_ITEMS for name in asks_of_answers(self.games) if not items}
        on = [game for game in games if game.id not in off]
        measured = rounds_with_change(self.past, self.look)
        p_keep = p_keep_of(measured, [game.id for game in on])
        coins: dict[str, Coin] = {}
        for game in on:
            # A stream of its own for each game: removing one leaves the others' coins as they were.
            place = int(sha256_hex(game.id)[:8], 16)
            rng = np.random.default_rng([self.run.record.seed, 29, self.number, place])
            coins |= toss({game.id: p_keep[game.id]}, len(measured), rng)
        known = price_of_plays(self.run.store, system_of(self.run.record))
        n_plays = count_plays(
            [game for game in on if coins[game.id].is_included],
            self.settings.plays,
            p_keep=p_keep,
            price_usd={game.id: known.get(game.id, 0.0) for game in on},
        )
        return tuple(
            CoinRecord(
                game=game.id,
                version=game.version,
                feeds=game.feeds,
                grounded=game.grounded,
                p_keep=p_keep.get(game.id),
                **({} if game.id not in coins else asdict(coins[game.id])),
                n_plays=min(n_plays.get(game.id, 0), len(items))
                if game.id in ANSWER_GAMES
                else n_plays.get(game.id, 0),
                off_reason=off.get(game.id),
            )
            for game in games
        )

    def _tables(self) -> dict[str, Sequence[Row]]:
        run_id, look = self.run_id, self.look
        assert look is not None  # noqa: S101 - a round begins with it
        seed, n_plays = self.run.record.seed, len(self._plays)
        totals = self.run.journal.totals(self.run_id)
        cost = None if totals.n_unpriced else totals.cost_usd or 0.0
        return {
            "game_rounds": [
                round_row(run_id, self.number, seed, look, n_plays, cost, self._limit)
            ],
            "game_coins": coin_rows(run_id, self.number, self.coins),
            "game_plays": play_rows(run_id, self._plays),
        }

    def _publish(self) -> None:
        run = self.run
        evaluations = [e for trial in self._trials for e in trial.evaluations]
        tables = generation_tables(
            run,
            0,
            [self._tables()],
            candidates=[trial.candidate for trial in self._trials],
            evaluations=evaluations,
            partial=self._limit is not None,
        )
        run.store.publish(run.run_id, 0, tables)


def _held_out_texts(loaded: Loaded) -> Iterator[str]:
    for case in loaded.holdout_cases:
        values = [*case.input.values()] if isinstance(case.input, dict) else [case.input]
        yield from (as_text(value) for value in values)
        if case.expected is not None:
            yield from map(as_text, answers_of(case.expected))


def games_round_of(run_id: str) -> GamesRound:
    """Return a round that this process holds open.

    Raises:
        KeyError: there is none.
    """
    return _ROUNDS[run_id]


@contextmanager
def held_open(opened: GamesRound) -> Iterator[GamesRound]:
    """Let a round be found by the id of its run."""
    _ROUNDS[opened.run_id] = opened
    try:
        yield opened
    finally:
        del _ROUNDS[opened.run_id]
