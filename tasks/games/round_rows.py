"""Rows of rounds of games, and rounds read back from a store."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from convergence_core.games.game import PlayKey, Turn
from convergence_core.games.round_records import (
    CoinRecord,
    HeldOutLook,
    PastRound,
    PlayRecord,
)
from convergence_core.ports import Ask, Row, Store
from convergence_core.records import Candidate, canonical_json, sha256_hex

_ROUNDS: Final = """
    SELECT g.* FROM game_rounds g JOIN runs r USING (run_id)
    WHERE r.name = $system ORDER BY g.round, g.run_id"""
_COINS: Final = """
    SELECT c.* FROM game_coins c JOIN runs r USING (run_id)
    WHERE r.name = $system ORDER BY c.round, c.run_id, c.game"""
_PLAYS: Final = """
    SELECT * FROM game_plays WHERE run_id = $run AND game = coalesce($game, game)
    ORDER BY game, position"""
_COSTS: Final = """
    SELECT p.game, avg(p.cost_usd) AS usd FROM game_plays p JOIN runs r USING (run_id)
    WHERE r.name = $system AND p.cost_usd IS NOT NULL GROUP BY p.game"""


def round_row(  # noqa: PLR0917 - of one row
    run_id: str,
    number: int,
    seed: int,
    look: HeldOutLook,
    n_plays: int,
    cost_usd: float | None,
    limit: str | None,
    sealed: Sequence[str] = (),
) -> Row:
    """Return the row of a round."""
    return {
        "run_id": run_id,
        "generation": 0,
        "round": number,
        "seed": seed,
        "candidate_id": look.candidate_id,
        "look": look.mean,
        "rewards_json": canonical_json({"n_cases": look.n_cases, "rewards": dict(look.rewards)}),
        "is_new_look": look.is_new,
        "n_plays": n_plays,
        "cost_usd": cost_usd,
        "limit_reason": limit,
        "sealed": [*sealed] or None,
    }


def candidate_row(run_id: str, candidate: Candidate) -> Row:
    """Return the row of a candidate that a round, or the sealed cases, looked at."""
    params = canonical_json(dict(candidate.params))
    return {
        "run_id": run_id,
        "generation": 0,
        "candidate_id": candidate.candidate_id,
        "origin": candidate.origin,
        "parent_ids": [],
        "params_json": params,
        "params_sha256": sha256_hex(params),
    }


def coin_rows(run_id: str, number: int, coins: Iterable[CoinRecord]) -> list[Row]:
    """Return the rows of a round's coins."""
    return [{"run_id": run_id, "generation": 0, "round": number, **one.to_json()} for one in coins]


def play_rows(run_id: str, plays: Iterable[PlayRecord]) -> list[Row]:
    """Return the rows of plays."""
    return [
        {
            "run_id": run_id,
            "generation": 0,
            "play_id": one.play_id,
            "game": one.game,
            "version": one.version,
            "round": one.key.round_number,
            "position": one.key.index,
            "seed": one.key.run_seed,
            "status": one.status,
            "scores": dict(one.scores),
            "reason": one.reason or None,
            "players_json": canonical_json(dict(one.players)),
            "turns_json": canonical_json(one.turns_json),
            "facts_json": canonical_json(dict(one.facts)),
            "sha256": one.sha256,
            "n_calls": one.n_calls,
            "cost_usd": one.cost_usd,
        }
        for one in plays
    ]


def past_rounds(store: Store, system: str) -> list[PastRound]:
    """Return the finished rounds of a system, by their numbers; of one number the latest.

    Args:
        store: where they are kept.
        system: name of the runs, with its end ``games``.
    """
    coins: dict[str, list[CoinRecord]] = {}
    for row in store.rows(_COINS, {"system": system}):
        coins.setdefault(str(row["run_id"]), []).append(CoinRecord.from_json(row))
    found = {
        int(str(row["round"])): PastRound(
            run_id=str(row["run_id"]),
            round_number=int(str(row["round"])),
            coins=tuple(coins.get(str(row["run_id"]), ())),
            look=_look(row),
            sealed=frozenset(_texts(row["sealed"])),
        )
        for row in store.rows(_ROUNDS, {"system": system})
    }
    return [found[number] for number in sorted(found)]


def round_of_run(store: Store, system: str, run_id: str) -> Mapping[str, Any]:
    """Return the row of a finished round.

    Raises:
        LookupError: the run has none.
    """
    for row in store.rows(_ROUNDS, {"system": system}):
        if row["run_id"] == run_id:
            return row
    raise LookupError(f"run {run_id} has no finished round of games")


def plays_of_run(store: Store, run_id: str, game: str | None = None) -> list[PlayRecord]:
    """Return the plays of a finished round, by game and number.

    Args:
        store: where they are kept.
        run_id: of the round.
        game: whose; ``None``: all.
    """
    return [_play(row) for row in store.rows(_PLAYS, {"run": run_id, "game": game})]


def price_of_plays(store: Store, system: str) -> dict[str, float]:
    """Return what a play of each game has cost on average, where prices are known."""
    rows = store.rows(_COSTS, {"system": system})
    return {str(row["game"]): float(str(row["usd"])) for row in rows}


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _look(row: Mapping[str, Any]) -> HeldOutLook:
    told = json.loads(str(row["rewards_json"]))
    return HeldOutLook(
        candidate_id=str(row["candidate_id"]),
        rewards=told["rewards"],
        n_cases=told["n_cases"],
        is_new=bool(row["is_new_look"]),
    )


def _play(row: Mapping[str, Any]) -> PlayRecord:
    turns: Sequence[tuple[str, str, str]] = json.loads(str(row["turns_json"]))
    return PlayRecord(
        game=str(row["game"]),
        version=int(row["version"]),
        key=PlayKey(
            run_seed=int(row["seed"]),
            round_number=int(row["round"]),
            index=int(row["position"]),
        ),
        status=row["status"],
        scores={str(k): float(v) for k, v in dict(row["scores"] or {}).items()},
        reason=str(row["reason"] or ""),
        players=json.loads(str(row["players_json"])),
        turns=tuple(Turn(Ask(role=role, text=text), reply) for role, text, reply in turns),
        facts=json.loads(str(row["facts_json"])),
        n_calls=int(row["n_calls"]),
        cost_usd=None if row["cost_usd"] is None else float(row["cost_usd"]),
    )
