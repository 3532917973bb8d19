"""Rows of rounds of games, and rounds read from a store."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from convergence_core.games.game import Game, PlayKey, Scores, Turn
from convergence_core.games.round_records import CoinRecord, PlayRecord
from convergence_core.ports import Ask, Row, RunRecord
from convergence_core.records import canonical_json, fields_of
from tasks.store.tables.lineage import GAMES_TAG
from tasks.store.tables.parquet_store import ParquetStore

COINS_TAG: Final = "game_coins"
"""Tag of a run that holds the plan of its round, set before the first play."""
_ROUNDS: Final = """
    SELECT g.* FROM game_rounds g JOIN runs r USING (run_id)
    WHERE r.name = $system || '.games' ORDER BY g.round, g.run_id"""
_COINS: Final = "SELECT * FROM game_coins WHERE run_id = $run ORDER BY game"
_PLAYS: Final = """
    SELECT * FROM game_plays
    WHERE run_id = $run AND game = coalesce($game, game) ORDER BY game, position"""
_COSTS: Final = """
    SELECT p.game, avg(p.cost_usd) AS usd FROM game_plays p JOIN runs r USING (run_id)
    WHERE r.name = $system || '.games' AND p.cost_usd IS NOT NULL GROUP BY p.game"""
_GAINS: Final = """
    SELECT p.scores, p.players_json FROM game_plays p JOIN runs r USING (run_id)
    WHERE r.name = $system || '.games' AND p.game = $game AND p.version = $version
      AND p.status = 'played'"""


def system_of(record: RunRecord) -> str:
    """Return the system whose games a run plays: the run's name without the suffix of games."""
    return record.name.removesuffix(f".{GAMES_TAG}")


def round_row(  # noqa: PLR0917 - of one row
    run_id: str,
    number: int,
    seed: int,
    n_plays: int,
    cost_usd: float | None,
    limit: str | None,
) -> Row:
    """Return the row of a round."""
    return {
        "run_id": run_id,
        "generation": 0,
        "round": number,
        "seed": seed,
        "n_plays": n_plays,
        "cost_usd": cost_usd,
        "limit_reason": limit,
    }


def coin_rows(run_id: str, number: int, coins: Iterable[CoinRecord]) -> list[Row]:
    """Return the rows of a round's coins."""
    return [{"run_id": run_id, "generation": 0, "round": number, **asdict(coin)} for coin in coins]


def play_rows(run_id: str, plays: Iterable[PlayRecord]) -> list[Row]:
    """Return the rows of plays."""
    return [
        {
            "run_id": run_id,
            "generation": 0,
            **fields_of(play, "play_id", "game", "version", "status", "n_calls", "cost_usd"),
            "round": play.key.round_number,
            "position": play.key.index,
            "seed": play.key.run_seed,
            "scores": dict(play.scores.by_role),
            "reason": play.scores.reason or None,
            "players_json": canonical_json(dict(play.players)),
            "turns_json": canonical_json(play.to_json()["turns"]),
            "facts_json": canonical_json(dict(play.facts)),
            "sha256": None if play.status == "lost" else play.sha256,
        }
        for play in plays
    ]


def round_rows(store: ParquetStore, system: str) -> list[Mapping[str, Any]]:
    """Return the rows of a system's finished rounds, by their numbers."""
    return [*store.rows(_ROUNDS, {"system": system})]


def coins_of_round(store: ParquetStore, run_id: str) -> list[CoinRecord]:
    """Return the plan of a run's finished round, by game."""
    return [CoinRecord.from_json(row) for row in store.rows(_COINS, {"run": run_id})]


def plays_of_run(store: ParquetStore, run_id: str, game: str | None = None) -> list[PlayRecord]:
    """Return the plays of a run's finished round, by game and number.

    Args:
        store: Store of the plays.
        run_id: Id of the run.
        game: Id of the game; ``None`` means all.
    """
    return [_play(row) for row in store.rows(_PLAYS, {"run": run_id, "game": game})]


def price_of_plays(store: ParquetStore, system: str) -> dict[str, float]:
    """Return game → mean cost of a play in dollars, for games with known prices."""
    rows = store.rows(_COSTS, {"system": system})
    return {row["game"]: row["usd"] for row in rows}


def gains_of_debates(
    store: ParquetStore, system: str, game: Game, players: Mapping[str, str]
) -> list[float]:
    """Return the gain of each debate between these players, in nats.

    Args:
        store: Store of the plays.
        system: Name of the system.
        game: The debate, of this version.
        players: Role → name of its player.
    """
    parameters = {"system": system, "game": game.id, "version": game.version}
    rows = store.rows(_GAINS, parameters)
    scored: list[Any] = [
        row["scores"] for row in rows if json.loads(row["players_json"]) == players
    ]
    return [float(dict(row)["advocate"]) for row in scored if "advocate" in dict(row or {})]


def _play(row: Mapping[str, Any]) -> PlayRecord:
    turns: Sequence[tuple[str, str, str]] = json.loads(row["turns_json"])
    return PlayRecord(
        game=row["game"],
        version=int(row["version"]),
        key=PlayKey(
            run_seed=int(row["seed"]),
            round_number=int(row["round"]),
            index=int(row["position"]),
        ),
        status=row["status"],
        scores=Scores(
            by_role={str(k): float(v) for k, v in dict(row["scores"] or {}).items()},
            reason=str(row["reason"] or ""),
        ),
        players=json.loads(row["players_json"]),
        turns=tuple(Turn(Ask(role=role, text=text), reply) for role, text, reply in turns),
        facts=json.loads(row["facts_json"]),
        n_calls=int(row["n_calls"]),
        cost_usd=None if row["cost_usd"] is None else float(row["cost_usd"]),
    )
