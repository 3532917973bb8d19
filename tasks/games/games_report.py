"""Report of a round of games, from the tables alone."""

from collections import Counter
from collections.abc import Mapping, Sequence

from convergence_core.games.meta_critic import GameEffect, effects
from convergence_core.games.registry import solved_games
from convergence_core.games.round_records import (
    CoinRecord,
    GamesReport,
    GameSummary,
    PlayRecord,
    role_scores,
    rounds_with_change,
)
from convergence_core.games.solved.solver import solve
from convergence_core.games.solved.tree import SEATS
from convergence_core.ports import RunRecord
from tasks.games.round_rows import past_rounds, plays_of_run, round_of_run
from tasks.games.sealed_set import sealed_results
from tasks.run.resources import OFFLINE
from tasks.store import ParquetStore
from tasks.store.tables.lineage import GAMES_TAG


def report_of(store: ParquetStore, record: RunRecord) -> GamesReport:
    """Return what a finished round did, and what the rounds up to its look say of each game.

    Args:
        store: holds the round.
        record: its run.

    Raises:
        LookupError: the run holds no finished round.
    """
    row = round_of_run(store, record.name, record.run_id)
    past = past_rounds(store, record.name)
    at = next(n for n, one in enumerate(past) if one.run_id == record.run_id)
    own, before = past[at], past[:at]
    measured = rounds_with_change(before, own.look)
    known = {one.game: one for one in effects(measured)} if measured else {}
    plays: dict[str, list[PlayRecord]] = {}
    for play in plays_of_run(store, record.run_id):
        plays.setdefault(play.game, []).append(play)
    reference = _references(plays)
    opened = next(
        (
            one
            for one in sealed_results(store, record.name.removesuffix(f".{GAMES_TAG}"))
            if one.first_round <= own.round_number <= one.last_round
        ),
        None,
    )
    games = tuple(
        _summary(one, plays.get(one.game, []), reference.get(one.game, {}), known.get(one.game))
        for one in own.coins
    )
    return GamesReport(
        system=record.name.removesuffix(f".{GAMES_TAG}"),
        label=record.label,
        round_number=own.round_number,
        look=own.look,
        games=games,
        n_measured=len(measured),
        n_plays=int(row["n_plays"]),
        n_calls=sum(play.n_calls for own_plays in plays.values() for play in own_plays),
        cost_usd=None if row["cost_usd"] is None else float(row["cost_usd"]),
        is_offline=OFFLINE in record.tags,
        limit=row["limit_reason"],
        n_sealed=0 if opened is not None else len(own.sealed),
        opened=opened,
    )


def latest_round(store: ParquetStore, name: str | None = None) -> RunRecord:
    """Return the run of a finished round.

    Args:
        store: holds it.
        name: its label or id, or its system; ``None``: the latest round of any system.

    Raises:
        LookupError: there is none.
    """
    finished = {str(row["run_id"]) for row in store.rows("SELECT run_id FROM game_rounds", {})}
    for record in store.runs():
        system = record.name.removesuffix(f".{GAMES_TAG}")
        if record.run_id in finished and name in (None, record.label, record.run_id, system):
            return record
    asked = "" if name is None else f" {name!r}"
    raise LookupError(
        f"the store {store.path} holds no finished round of games{asked}. Play one with "
        "`convergence games run`."
    )


def _references(plays: Mapping[str, object]) -> dict[str, dict[str, float]]:
    """Return what the solver gets against the solver, by game and role."""
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
    known = [one for one in costs if one is not None]
    return GameSummary(
        coin=coin,
        n_played=n_by["played"],
        n_void=n_by["void"],
        n_lost=n_by["lost"],
        scores=role_scores(plays, reference),
        reasons=dict(Counter(play.reason for play in plays if play.reason)),
        cost_usd=sum(known) if len(known) == len(costs) else None,
        effect=effect,
    )
