"""Judge of a round of games, and the answers that audit it.

A judge is audited on the system's answers for which executed metrics know the right one. They come
from the newest run with such answers.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from convergence_core.config.games import ANSWER_GAMES
from convergence_core.games.judge_games import DebateGame
from convergence_core.ports import RunRecord
from convergence_core.sao.executed_items import AuditItem, GroundedAnswer, audit_items
from convergence_core.sao.played_items import after_plays
from convergence_core.sao.state import SaoState
from tasks.games.answer_games import deal
from tasks.games.configured_games import ConfiguredGame
from tasks.games.round_rows import gains_of_debates, system_of
from tasks.run.run import Run
from tasks.sao.factory import grounded_answers
from tasks.sao.history import history_of, history_tag, inherited_state, judge_of, played_items

MOST_ITEMS: Final = 50
"""Maximum items of one round, which is what a verdict on the judge needs."""
NO_ITEMS: Final = "no test case yet has one answer that executed metrics found right and another that they found wrong"
_MOST_RUNS: Final = 5


def asks_of_answers(games: Mapping[str, ConfiguredGame]) -> set[str]:
    """Return the games about answers of the system."""
    return ANSWER_GAMES.keys() & games.keys()


class JudgedPlays:
    """State of the judge in one round.

    Args:
        run: run that holds the round.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._system = system_of(run.record)

    def items(self, n: int | None, audited: Sequence[str] = ()) -> list[AuditItem]:
        """Return items with a known answer, those audited earlier last.

        Args:
            n: maximum number; ``None`` means all.
            audited: ids of the items that audited the judge earlier.
        """
        return audit_items(self._answers(), sys.maxsize if n is None else n, used=audited)

    def dealt(
        self, games: Mapping[str, ConfiguredGame], item_ids: Sequence[str]
    ) -> dict[str, ConfiguredGame]:
        """Return the games about answers, with the planned item of each play."""
        known = {item.item_id: item for item in self.items(None)}
        items = [known.get(name) for name in item_ids]
        return {
            name: replace(games[name], dealt=deal(name, items)) for name in asks_of_answers(games)
        }

    def gains(self, games: Mapping[str, ConfiguredGame]) -> list[float]:
        """Return the gain of each earlier debate between the current players, in nats."""
        debate = games.get(DebateGame.id)
        if debate is None:
            return []
        return gains_of_debates(self._run.store, self._system, debate.game, debate.names)

    def after_plays(self) -> tuple[SaoState, tuple[str, ...]]:
        """Return the state after all rounds of games, and the items that audited its judge.

        Raises:
            StoreDamagedError: a file cannot be read.
        """
        run = self._run
        played = played_items(run.store, run.record.name, judge_of(run.record.config_json))
        return after_plays(
            self._inherited(), played, history_of(run.store, self._record()).audited
        )

    def _answers(self) -> Sequence[GroundedAnswer]:
        run = self._run
        for record in [*run.store.runs(self._system)][:_MOST_RUNS]:
            if answers := grounded_answers(run.loaded, run.store, record.run_id):
                return answers
        return ()

    def _record(self) -> RunRecord:
        """Return the run's record under the system's name, tagged with earlier runs."""
        tags = history_tag(self._run.store, self._system)
        return replace(self._run.record, name=self._system, tags=tags)

    def _inherited(self) -> SaoState:
        """Return the judge's state from earlier runs' preferences; a new one if there are none."""
        sao = self._run.configuration.society.sao
        limit, n = sao.iterative_rounds, sao.n_personas
        state = inherited_state(self._run.store, self._record(), limit=limit, n_personas=n)
        return state or SaoState(limit=limit)
