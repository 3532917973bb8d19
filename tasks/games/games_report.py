"""Report of a round of games, computed from the tables."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from convergence_core.games.meta_critic import GameEffect
from convergence_core.games.registry import solved_games
from convergence_core.games.round_records import (
    CoinRecord,
    GamesReport,
    GameSummary,
    PlayRecord,
    role_scores,
)
from convergence_core.games.solved.solver import solve
from convergence_core.games.solved.tree import SEATS
from convergence_core.ports import RunRecord
from tasks.games.game_cases import game_effects
from tasks.games.round_rows import coins_of_round, plays_of_run, round_rows, system_of
from tasks.store.tables.lineage import OFFLINE
from tasks.store.tables.parquet_store import ParquetStore

_FINISHED: Final = """
    SELECT g.run_id FROM game_rounds g JOIN runs r USING (run_id) WHERE r.name LIKE '%.games'"""


def report_of(store: ParquetStore, record: RunRecord) -> GamesReport:
    """Return the results of a finished round, with each game's effect in earlier searches.

    Args:
        store: Store of the round.
        record: Run of the round.

    Raises:
        LookupError: the run holds no finished round.
    """
    system = system_of(record)
    row = next((r for r in round_rows(store, system) if r["run_id"] == record.run_id), None)
    if row is None:
        raise LookupError(f"run {record.label} has no finished round of games")
    plays = plays_of_run(store, record.run_id)
    effect_of = game_effects(store, system, before_us=record.started_us)
    of_game: dict[str, list[PlayRecord]] = {}
    for play in plays:
        of_game.setdefault(play.game, []).append(play)
    reference = _references(of_game)
    return GamesReport(
        system=system,
        label=record.label,
        round_number=int(row["round"]),
        games=tuple(
            _summary(
                coin,
                of_game.get(coin.game, []),
                reference.get(coin.game, {}),
                effect_of.get(coin.game),
            )
            for coin in coins_of_round(store, record.run_id)
        ),
        n_plays=len(plays),
        n_calls=sum(play.n_calls for play in plays),
        cost_usd=None if row["cost_usd"] is None else float(row["cost_usd"]),
        is_offline=OFFLINE in record.tags,
        limit=row["limit_reason"],
    )


def latest_round(store: ParquetStore, name: str | None = None) -> RunRecord:
    """Return the run of a finished round.

    Args:
        store: Store of the rounds.
        name: Label or id of the run, or name of the system; ``None`` means the latest round of any
            system.

    Raises:
        LookupError: no finished round matches.
    """
    finished = {row["run_id"] for row in store.rows(_FINISHED, {})}
    for record in store.runs():
        known = (None, record.label, record.run_id, system_of(record))
        if record.run_id in finished and name in known:
            return record
    named = "" if name is None else f" {name!r}"
    raise LookupError(
        f"the store {store.path} holds no finished round of games{named}. Play one with "
        "`convergence games run`."
    )


def _references(plays: Mapping[str, object]) -> dict[str, dict[str, float]]:
    """Return the game values under optimal play, by game and role."""
    return {
        game.id: dict(zip(SEATS, (value, -value), strict=True))
        for game in solved_games()
        if game.id in plays
        for value in (solve(game).value,)
    }


def _summary(
    coin: CoinRecord,
    plays: Sequence[PlayRecord],
    reference: Mapping[str, float],
    effect: GameEffect | None,
) -> GameSummary:
    n_by = Counter(play.status for play in plays)
    costs = [play.cost_usd for play in plays]
    known = [cost for cost in costs if cost is not None]
    return GameSummary(
        coin=coin,
        n_played=n_by["played"],
        n_void=n_by["void"],
        n_lost=n_by["lost"],
        scores=role_scores(plays, reference),
        reasons=dict(Counter(play.scores.reason for play in plays if play.scores.reason)),
        cost_usd=sum(known) if len(known) == len(costs) else None,
        effect=effect,
    )
