"""Round of language games: a look at held-out cases, coins, plays.

The look is at the incumbent, the champion or else the defaults. So the change that a round is followed by is
known before the next one: its look less this one's, paired by case. Coins, and how many plays each game gets,
are fixed in the run's row before anything is played. All plays are published at once; a round that was killed
goes on with the same coins, and reads what was paid from the journal.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np

from convergence_core.config import Configuration
from convergence_core.errors import ConfigurationError
from convergence_core.games.held_out import HeldOutGuard, HeldOutLooks
from convergence_core.games.meta_critic import Coin, p_keep_of, toss
from convergence_core.games.offer import on_offer
from convergence_core.games.registry import plays_of
from convergence_core.games.round_records import (
    CoinRecord,
    GamesReport,
    HeldOutLook,
    PlayRecord,
    rounds_with_change,
)
from convergence_core.ports import LLM, Row
from convergence_core.records import Assignment, Candidate, Cell, Trial, canonical_json, sha256_hex
from convergence_core.sao.prompt_shape import shape_of
from convergence_core.sao.rounds import Rounds
from convergence_core.sao.state import SaoState
from convergence_core.search.study import limit_reached
from tasks.games.configured_games import ConfiguredGame, configured_games
from tasks.games.games_report import report_of
from tasks.games.players import SystemSeat
from tasks.games.round_player import RoundPlayer, limit_words
from tasks.games.round_rows import (
    candidate_row,
    coin_rows,
    past_rounds,
    play_rows,
    price_of_plays,
    round_row,
)
from tasks.games.sealed_set import check_still_sealed
from tasks.http.authentication import secret_name
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded
from tasks.json_values import as_text
from tasks.rlp.learner_calls import LearnerCalls, SubBudget
from tasks.run.assessment import champion_of_test, interrupted
from tasks.run.opener import prepare_run, with_overrides
from tasks.run.resources import Caller
from tasks.run.run import Run
from tasks.sao.history import history_tag, inherited_state
from tasks.store.tables.lineage import GAMES_TAG
from tasks.store.tables.rows import generation_row, payload_rows

COINS_TAG: Final = "game_coins"
"""Tag of a run that holds the coins of its round, before anything is played."""
_ROUNDS: Final[dict[str, "GamesRound"]] = {}
"""Run → its round, for tasks whose parameters are ids."""


class GamesRound:
    """A round in progress; ``open_games_round`` opens one."""

    def __init__(self, run: Run, games: dict[str, ConfiguredGame], calls: LearnerCalls,
                 redact: Callable[[str], str]) -> None:  # fmt: skip
        """Begin a round, or go on with one.

        Args:
            run: its limits, ledger and journal.
            games: that may be played.
            calls: of the models that play.
            redact: keeps secrets out of what is stored.
        """
        self.run, self.games = run, games
        self.settings = run.configuration.society.games
        past = past_rounds(run.store, run.record.name)
        self.is_finished = any(one.run_id == run.run_id for one in past)
        """Whether its plays are published: it was killed after that."""
        self.past = [one for one in past if one.run_id != run.run_id]
        self.number = 1 + max((one.round_number for one in self.past), default=-1)
        self.look: HeldOutLook | None = None
        self.coins: tuple[CoinRecord, ...] = ()
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
            system=self._system_seat(),
        )

    @property
    def run_id(self) -> str:
        """Of the run that holds the round."""
        return self.run.run_id

    @property
    def included(self) -> list[CoinRecord]:
        """Games that the coins included, and that were given plays."""
        return [one for one in self.coins if one.is_included and one.n_plays]

    # -- the story

    def take_look(self) -> HeldOutLook:
        """Look at the incumbent's answers to held-out cases, once; an incumbent that stayed is not asked again.

        Raises:
            HeldOutError: the round's look was taken before.
            RunInterruptedError: the run was asked to stop.
        """
        taken = tuple(one.round_number for one in self.past)
        HeldOutLooks(rounds=taken).after(self.number)
        incumbent = self._incumbent()
        cases = [case.case_id for case in self.run.loaded.holdout_cases]
        name = "" if incumbent is None else incumbent.candidate_id
        before = self.past[-1].look if self.past else None
        if (
            before is not None
            and before.candidate_id == name
            and before.rewards.keys() == {*cases}
        ):
            self.look = replace(before, is_new=False)
        elif incumbent is None or not cases:
            self.look = HeldOutLook(candidate_id=name, rewards={}, n_cases=0, is_new=False)
        else:
            cells = tuple(Cell(candidate_id=name, case_id=one, role="holdout") for one in cases)
            trial = self.run.evaluate(
                Assignment(candidate=incumbent, cells=cells, label="look at held-out cases"), 0
            )
            self.run.check_stop()
            self._trials = [trial]
            reached = limit_reached([trial])
            self._limit = None if reached is None else limit_words(reached)
            found = {e.cell.case_id: e.reward for e in trial.evaluations if e.reward is not None}
            self.look = HeldOutLook(
                candidate_id=name, rewards=found, n_cases=len(cases), is_new=True
            )
        return self.look

    def toss_coins(self) -> tuple[CoinRecord, ...]:
        """Fix which games the round plays, and how often; what a killed round had fixed stays.

        Raises:
            StoreError: nothing may be played then.
        """
        run, kept = self.run, self.run.record.tags.get(COINS_TAG)
        if kept is None:
            self.coins = self._tossed()
            text = canonical_json([one.to_json() for one in self.coins])
            run.record = replace(run.record, tags={**run.record.tags, COINS_TAG: text})
            run.save("running")
        else:
            self.coins = tuple(CoinRecord.from_json(one) for one in json.loads(kept))
        return self.coins

    def play(self, name: str) -> int:
        """Play a game as often as it was given; return how many plays ended.

        Raises:
            RunInterruptedError: the run was asked to stop.
        """
        self.run.check_stop()
        n_plays = next(one.n_plays for one in self.coins if one.game == name)
        if self._limit is not None:
            return 0
        found = self._player.play(self.games[name], n_plays)
        self.run.check_stop()
        self._limit = self._player.limit
        self._plays += found
        return len(found)

    def finish(self) -> GamesReport:
        """Publish the round, mark its run as done, and return what it did.

        Raises:
            StoreWriteError: nothing of it is visible then; the round goes on with the next command.
        """
        run = self.run
        if not self.is_finished:
            self._publish()
        run.save("done", self._limit or "the round was played")
        return report_of(run.store, run.record)

    # -- parts

    def _incumbent(self) -> Candidate | None:
        return champion_of_test(self.run) or self.run.study.baseline

    def _system_seat(self) -> SystemSeat | None:
        """Return the system as a player; ``None``: it plays no role.

        Raises:
            ConfigurationError: its test cases do not show how it is asked a text, or there is no incumbent.
        """
        roles = [
            (name, role) for name, one in self.games.items() for role in sorted(one.of_system)
        ]
        if not roles:
            return None
        shape, incumbent = shape_of(self.run.loaded.cases), self._incumbent()
        if shape is None or incumbent is None:
            name, role = roles[0]
            rule = (
                "can be `system` where a champion or defaults answer, and test cases hold one text each: a "
                "text, a mapping with one text, or messages that end with the user's"
            )
            raise ConfigurationError.of(
                f"society.games.games.{name}.roles.{role}.player",
                rule,
                "Let an `llm` play.",
                value="system",
            )
        api = self.run.configuration.api
        return SystemSeat(
            target=self.run.session.target,
            shape=shape,
            params=incumbent.params,
            credential=secret_name(api),
            timeout_s=api.request.timeout_seconds,
        )

    def _tossed(self) -> tuple[CoinRecord, ...]:
        games = [one.game for one in self.games.values()]
        state = self._sao_state()
        offer = on_offer(
            games, trust=state.trust, exploitation=state.exploitation, coverage=state.alarms
        )
        off = dict(offer.off) | {
            name: one.off_reason for name, one in self.games.items() if one.off_reason is not None
        }
        on = [game for game in games if game.id not in off]
        measured = rounds_with_change(self.past, self.look)
        p_keep = p_keep_of(measured, [game.id for game in on])
        coins: dict[str, Coin] = {}
        for game in on:
            # A stream of its own for each game: removing one leaves the others' coins as they were.
            place = int(sha256_hex(game.id)[:8], 16)
            rng = np.random.default_rng([self.run.record.seed, 29, self.number, place])
            coins |= toss({game.id: p_keep[game.id]}, len(measured), rng)
        known = price_of_plays(self.run.store, self.run.record.name)
        n_plays = plays_of(
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
                coin=coins.get(game.id),
                n_plays=n_plays.get(game.id, 0),
                off_reason=off.get(game.id),
            )
            for game in games
        )

    def _sao_state(self) -> SaoState:
        """Return what the system's preferences know of its judge; nothing where it wrote none."""
        run, sao = self.run, self.run.configuration.society.sao
        name = run.record.name.removesuffix(f".{GAMES_TAG}")
        record = replace(run.record, name=name, tags=history_tag(run.store, name))
        found = inherited_state(
            run.store, record, limit=sao.iterative_rounds, n_personas=sao.n_personas
        )
        return found or SaoState(rounds=Rounds(limit=sao.iterative_rounds))

    def _publish(self) -> None:
        run, look = self.run, self.look
        assert look is not None  # noqa: S101 - a round begins with it
        evaluations = [e for trial in self._trials for e in trial.evaluations]
        totals = run.journal.totals(run.run_id)
        cost = None if totals.n_unpriced else totals.cost_usd or 0.0
        marker = generation_row(
            run.run_id,
            0,
            evaluations,
            run.state.to_checkpoint(),
            flow_run_id=None,
            partial=self._limit is not None,
            fallback_us=run.record.started_us,
        )
        tables: dict[str, Sequence[Row]] = {
            "payloads": payload_rows(run.run_id, evaluations),
            "candidates": [candidate_row(run.run_id, one.candidate) for one in self._trials],
            "evaluations": run.evaluation_rows(evaluations),
            "attempts": run.journal.attempts(run.run_id, generation=0),
            "game_rounds": [
                round_row(
                    run.run_id,
                    self.number,
                    run.record.seed,
                    look,
                    len(self._plays),
                    cost,
                    self._limit,
                    [case.case_id for case in run.loaded.sealed_cases],
                )
            ],
            "game_coins": coin_rows(run.run_id, self.number, self.coins),
            "game_plays": play_rows(run.run_id, self._plays),
            "generations": [marker],
        }
        run.store.publish(run.run_id, 0, tables)


def _held_out_texts(loaded: Loaded) -> Iterator[str]:
    for case in loaded.hidden_cases:
        values = [*case.input.values()] if isinstance(case.input, dict) else [case.input]
        yield from (as_text(one) for one in values)
        if case.expected is not None:
            yield as_text(case.expected)


@contextmanager
def open_games_round(
    loaded: Loaded, *, seed: int | None = None, mock_url: str | None = None
) -> Iterator[GamesRound]:
    """Open a round of a configuration's games; one that was interrupted goes on.

    Args:
        loaded: the configuration and its files.
        seed: in place of ``optimization.seed``.
        mock_url: server that answers in place of chat models.

    Raises:
        ConfigurationError: a game cannot be played as it is configured.
        HeldOutError: its sealed cases were opened, which ended the rounds.
        LeaseHeldError: another process plays a round of this system.
        StoreError: the store cannot be used.
    """
    budget = _share(loaded.configuration)
    loaded = replace(
        loaded, configuration=with_overrides(loaded.configuration, seed=seed, budget=budget)
    )
    caller: Caller = {} if mock_url is None else {"mock_url": mock_url}
    check_still_sealed(loaded, mock_url=mock_url)
    world = Environment.of(loaded.configuration, mock_url=mock_url)
    redact = world.redactor(loaded.configuration)
    with ExitStack() as held:
        games = configured_games(loaded, world, redact)
        for one in games.values():
            held.callback(one.close)
        run = interrupted(loaded, caller, GAMES_TAG) or prepare_run(
            loaded, part=GAMES_TAG, **caller
        )
        held.enter_context(run)
        run.begin_final()
        calls = LearnerCalls("games", run.session, SubBudget(limit_usd=None))
        held.callback(calls.close, *_models(games))
        opened = GamesRound(run, games, calls, redact)
        _ROUNDS[run.run_id] = opened
        try:
            yield opened
        finally:
            del _ROUNDS[run.run_id]


def _models(games: Mapping[str, ConfiguredGame]) -> list[LLM]:
    """Return the models that play, each once."""
    found = [seat.model.llm for one in games.values() for seat in one.seats.values()]
    return [*{id(one): one for one in found}.values()]


def listed_games(loaded: Loaded, *, mock_url: str | None = None) -> list[dict[str, Any]]:
    """Return what a configuration's games are and who plays them; nobody is asked.

    Raises:
        ConfigurationError: a game cannot be played as it is configured.
    """
    world = Environment.of(loaded.configuration, mock_url=mock_url)
    games = configured_games(loaded, world, world.redactor(loaded.configuration))
    for one in games.values():
        one.close()
    return [
        {
            "game": one.game.id,
            "version": one.game.version,
            "feeds": one.game.feeds,
            "grounded": one.game.grounded,
            "most_replies": sum(one.game.cost[role] for role in (*one.seats, *one.of_system)),
            "players": dict(one.names),
            "off_reason": one.off_reason,
        }
        for one in games.values()
    ]


def play_games(opened: GamesRound, tell: Callable[[str], None] | None = None) -> GamesReport:
    """Take an open round to its end, as the flow ``games`` does; return what it did.

    Args:
        opened: the round.
        tell: told of each step.
    """
    say = tell or (lambda _: None)
    if not opened.is_finished:
        look = opened.take_look()
        if look.is_new:
            say(f"looked at {look.n_cases} held-out cases")
        opened.toss_coins()
        for one in opened.included:
            say(f"{one.game}: {opened.play(one.game)} plays")
    return opened.finish()


def games_round_of(run_id: str) -> GamesRound:
    """Return a round that this process holds open.

    Raises:
        KeyError: there is none.
    """
    return _ROUNDS[run_id]


def _share(configuration: Configuration) -> dict[str, float | None]:
    """Return the limits of a round: its share of those of a run."""
    share, budget = configuration.society.games.max_share_usd, configuration.budget
    usd, calls = budget.max_usd, budget.max_calls
    return {
        "max_usd": None if usd is None else share * usd,
        "max_calls": None if calls is None else max(1, int(share * calls)),
    }
