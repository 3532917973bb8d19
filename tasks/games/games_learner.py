"""Games as a learner of a run: rounds that are due, rows that are pending.

The flow ``games`` plays the round before a generation, and the generation publishes it: the rows of both become
visible at once. Killed in between, a run plays the round again with the answers of the journal and comes to
the same rows (``tasks.run.games_round``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from convergence_core.config import Configuration
from convergence_core.ports import Row
from convergence_core.records import Trial
from convergence_core.sao.prompt_shape import shape_of
from convergence_core.search.learner import LearnerStep
from convergence_core.search.sampler import Advice
from convergence_core.search.study import PlannedGeneration, Study
from convergence_core.search.study_state import StudyState
from tasks.games.configured_games import (
    ConfiguredGame,
    configured_games,
    missing_system_error,
    models_of,
)
from tasks.rlp.learner_calls import LearnerCalls, LearnerParts, SubBudget
from tasks.store.tables.lineage import PARTS, ROUNDS_TAG

GAMES: Final = "games"
KEY: Final = "society.games.max_share_usd"


def share_of_round(configuration: Configuration) -> tuple[float | None, int | None]:
    """Return the dollars and the calls that one round may use; ``None``: the run has no such limit."""
    share, budget = configuration.society.games.max_share_usd, configuration.budget
    usd, calls = budget.max_usd, budget.max_calls
    return (
        None if usd is None else share * usd,
        None if calls is None else max(1, int(share * calls)),
    )


@dataclass(slots=True, eq=False, kw_only=True)
class GamesLearner:
    """See ``convergence_core.search.learner``."""

    name = GAMES
    variants: ClassVar[Mapping[str, Sequence[str]]] = {}
    vectors: ClassVar[Mapping[str, str]] = {}
    disabled_reason: ClassVar[str | None] = None
    every: int
    """Generations from one round to the next."""
    games: Mapping[str, ConfiguredGame]
    calls: LearnerCalls
    redact: Callable[[str], str]
    n_rounds: int = 0
    """Of committed generations."""
    _pending: tuple[int, Mapping[str, Sequence[Row]]] | None = field(default=None, init=False)

    def is_due(self, state: StudyState) -> bool:
        """Whether a round is to be played before the next generation; never before the first."""
        generation = state.next_generation
        return generation > 0 and generation % self.every == 0 and self._pending is None

    def calls_of_round(self, configuration: Configuration) -> LearnerCalls:
        """Return the calls of a round, with the share of the budget that one may use."""
        usd, calls = share_of_round(configuration)
        self.calls.budget = SubBudget(limit_usd=usd, limit_calls=calls, owner=GAMES, key=KEY)
        return self.calls

    def keep(self, generation: int, tables: Mapping[str, Sequence[Row]]) -> None:
        """Take the rows of the round that was played before a generation."""
        self._pending = (generation, tables)

    def think(self, study: Study, state: StudyState, advice: Advice) -> int:  # noqa: ARG002
        """Do nothing: the flow ``games`` plays, so that each of its steps is seen."""
        return 0

    def advise(self, study: Study, state: StudyState, advice: Advice) -> Advice:  # noqa: ARG002
        """Return the advice of the learners before it."""
        return advice

    def learn(
        self,
        study: Study,  # noqa: ARG002 - of the protocol
        state: StudyState,
        planned: PlannedGeneration,  # noqa: ARG002
        trials: Sequence[Trial],  # noqa: ARG002
    ) -> LearnerStep:
        """Return the rows of the round before this generation."""
        pending = self._pending
        is_new = pending is not None and pending[0] == state.next_generation
        return LearnerStep(
            learned={"n_rounds": self.n_rounds + is_new},
            tables=pending[1] if pending is not None and is_new else {},
        )

    def commit(self) -> None:
        """Move on to what the store has made durable."""
        self.n_rounds += self._pending is not None
        self._pending = None

    def close(self) -> None:
        """Close the models' connections; safe to call twice. Processes of games are closed with the run."""
        self.calls.close(*models_of(self.games))


def make_games(parts: LearnerParts) -> GamesLearner | None:
    """Return the games that a run plays between its generations; ``None`` if it plays none.

    Raises:
        ConfigurationError: a game cannot be played as it is configured.
    """
    loaded, session = parts.loaded, parts.session
    every = loaded.configuration.society.games.every
    if every is None or {*parts.record.tags} & {*PARTS, ROUNDS_TAG}:
        return None
    games = configured_games(loaded, parts.world, parts.redact)
    for game in games.values():
        parts.held.callback(game.close)
    if shape_of(loaded.cases) is None and any(game.of_system for game in games.values()):
        raise missing_system_error(games)
    learned = parts.state.learned.get(GAMES)
    n_rounds = learned.get("n_rounds") if isinstance(learned, dict) else None
    return GamesLearner(
        every=every,
        games=games,
        calls=LearnerCalls(GAMES, session, SubBudget(limit_usd=None, owner=GAMES, key=KEY)),
        redact=parts.redact,
        n_rounds=n_rounds if isinstance(n_rounds, int) else 0,
    )
