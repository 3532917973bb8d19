"""Rows of rounds of games, and rounds read back from a store."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from convergence_core.games.game import Game, PlayKey, Scores, Turn
from convergence_core.games.round_records import (
    CoinRecord,
    HeldOutLook,
    PastRound,
    PlayRecord,
)
from convergence_core.ports import Ask, Row, RunRecord
from convergence_core.records import canonical_json, fields_of
from tasks.store import ParquetStore
from tasks.store.tables.lineage import GAMES_TAG, owner, payer

COINS_TAG: Final = "game_coins"
"""Tag of a run that holds the coins of its round, before anything is played."""
_ROUNDS: Final = """
    SELECT g.*, r.name FROM game_rounds g JOIN runs r USING (run_id)
    WHERE r.name IN ($system, $system || '.games') ORDER BY g.round, g.run_id, g.generation"""
_COINS: Final = """
    SELECT c.* FROM game_coins c JOIN runs r USING (run_id)
    WHERE r.name IN ($system, $system || '.games') ORDER BY c.round, c.run_id, c.game"""
_FINAL: Final = """
    SELECT e.run_id, e.candidate_id, e.case_id, avg(e.reward) AS reward, count(*) = count(e.reward) AS is_whole
    FROM evaluations e JOIN runs r USING (run_id)
    JOIN estimates b ON b.run_id = e.run_id AND b.candidate_id = e.candidate_id
    WHERE r.name = $system AND e.run_id IN (SELECT run_id FROM game_rounds) AND e.generation IS NULL
      AND e.role = 'holdout' AND b.generation IS NULL AND b.role = 'search' AND b.rank = 1
    GROUP BY e.run_id, e.candidate_id, e.case_id ORDER BY e.run_id, e.case_id"""
"""Mean rewards of the leaders that runs ended with, by held-out case."""
_PLAYS: Final = """
    SELECT * FROM game_plays
    WHERE run_id = $run AND generation = coalesce($generation, generation) AND game = coalesce($game, game)
    ORDER BY generation, game, position"""
_COSTS: Final = """
    SELECT p.game, avg(p.cost_usd) AS usd FROM game_plays p JOIN runs r USING (run_id)
    WHERE r.name IN ($system, $system || '.games') AND p.cost_usd IS NOT NULL GROUP BY p.game"""
_GAINS: Final = """
    SELECT p.scores, p.players_json FROM game_plays p JOIN runs r USING (run_id)
    WHERE r.name IN ($system, $system || '.games') AND p.game = $game AND p.version = $version
      AND p.status = 'played'"""


def system_of(record: RunRecord) -> str:
    """Return the system whose games a run plays: its name, without the end of rounds that are played alone."""
    return record.name.removesuffix(f".{GAMES_TAG}")


def round_row(  # noqa: PLR0917 - of one row
    run_id: str,
    number: int,
    seed: int,
    look: HeldOutLook,
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
        "candidate_id": look.candidate_id,
        "look": look.mean,
        "rewards_json": canonical_json({"n_cases": look.n_cases, "rewards": dict(look.rewards)}),
        "is_new_look": look.is_new,
        "n_plays": n_plays,
        "cost_usd": cost_usd,
        "limit_reason": limit,
    }


def coin_rows(run_id: str, number: int, coins: Iterable[CoinRecord]) -> list[Row]:
    """Return the rows of a round's coins."""
    return [
        {"run_id": run_id, "generation": 0, "round": number, **coin.to_json()} for coin in coins
    ]


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


def past_rounds(store: ParquetStore, system: str) -> list[PastRound]:
    """Return the finished rounds of a system, by their numbers, each once.

    A run that goes on from another holds the rounds of that one, too; of those the latest row is taken.

    Args:
        store: where they are kept.
        system: its name.
    """
    records = _records(store, system)
    rounds = {
        (owner(records[past.run_id], past.generation), past.generation): past
        for past in all_rounds(store, system)
    }
    return sorted(rounds.values(), key=lambda past: (past.round_number, past.place))


def next_number(store: ParquetStore, system: str, past: Iterable[PastRound]) -> int:
    """Return the number of a round that begins: above all finished ones and those in flight that have fixed their coins.

    A round that is played alone and one within a run may be in flight at once, and so have two numbers.
    """
    fixed = (
        json.loads(record.tags[COINS_TAG])
        for record in _records(store, system).values()
        if record.status != "done" and COINS_TAG in record.tags
    )
    numbers = [record.round_number for record in past] + [int(row["round"]) for row in fixed]
    return 1 + max(numbers, default=-1)


def _records(store: ParquetStore, system: str) -> dict[str, RunRecord]:
    names = (system, f"{system}.{GAMES_TAG}")
    return {run.run_id: run for name in names for run in store.runs(name)}


def all_rounds(store: ParquetStore, system: str) -> list[PastRound]:
    """Return the finished rounds of a system, by their numbers, those that were handed on, too."""
    records = _records(store, system)
    coins: dict[tuple[str, int], list[CoinRecord]] = {}
    for row in store.rows(_COINS, {"system": system}):
        place = (str(row["run_id"]), int(str(row["generation"])))
        coins.setdefault(place, []).append(CoinRecord.from_json(row))
    ended = _final_looks(store, system)
    return [
        PastRound(
            run_id=run_id,
            generation=generation,
            round_number=int(str(row["round"])),
            series=payer(records[run_id])[0] if row["name"] == system else "",
            coins=tuple(coins.get((run_id, generation), ())),
            look=_look(row),
            after=ended.get(run_id),
        )
        for row in store.rows(_ROUNDS, {"system": system})
        for run_id, generation in [(str(row["run_id"]), int(str(row["generation"])))]
    ]


def rounds_of_run(store: ParquetStore, system: str, run_id: str) -> list[Mapping[str, Any]]:
    """Return the rows of a run's finished rounds, in their order; empty: there is none."""
    rows = store.rows(_ROUNDS, {"system": system})
    return [row for row in rows if row["run_id"] == run_id]


def plays_of_run(
    store: ParquetStore, run_id: str, game: str | None = None, *, generation: int | None = None
) -> list[PlayRecord]:
    """Return the plays of a run's finished rounds, by round, game and number.

    Args:
        store: where they are kept.
        run_id: of the run.
        game: whose; ``None`` means all.
        generation: of the run, before which the round was played; ``None`` means all.
    """
    parameters = {"run": run_id, "game": game, "generation": generation}
    return [_play(row) for row in store.rows(_PLAYS, parameters)]


def price_of_plays(store: ParquetStore, system: str) -> dict[str, float]:
    """Return what a play of each game has cost on average, where prices are known."""
    rows = store.rows(_COSTS, {"system": system})
    return {str(row["game"]): float(str(row["usd"])) for row in rows}


def gains_of_debates(
    store: ParquetStore, system: str, game: Game, players: Mapping[str, str]
) -> list[float]:
    """Return what each debate between these players gained, in nats.

    Args:
        store: where plays are kept.
        system: whose.
        game: the debate, of this version.
        players: role → who plays it.
    """
    parameters = {"system": system, "game": game.id, "version": game.version}
    rows = store.rows(_GAINS, parameters)
    scored: list[Any] = [
        row["scores"] for row in rows if json.loads(str(row["players_json"])) == players
    ]
    return [float(dict(row)["advocate"]) for row in scored if "advocate" in dict(row or {})]


def _final_looks(store: ParquetStore, system: str) -> dict[str, HeldOutLook]:
    """Return what the final tests of a system's runs measured of their leaders, by run."""
    looks: dict[str, dict[str, float]] = {}
    n_cases: dict[str, int] = {}
    whose: dict[str, str] = {}
    for row in store.rows(_FINAL, {"system": system}):
        run_id = str(row["run_id"])
        n_cases[run_id] = n_cases.get(run_id, 0) + 1
        whose[run_id] = str(row["candidate_id"])
        rewards = looks.setdefault(run_id, {})
        if row["is_whole"]:
            rewards[str(row["case_id"])] = float(str(row["reward"]))
    return {
        run_id: HeldOutLook(
            candidate_id=whose[run_id], rewards=rewards, n_cases=n_cases[run_id], is_new=True
        )
        for run_id, rewards in looks.items()
    }


def _look(row: Mapping[str, Any]) -> HeldOutLook:
    rewards = json.loads(str(row["rewards_json"]))
    return HeldOutLook(
        candidate_id=str(row["candidate_id"]),
        rewards=rewards["rewards"],
        n_cases=rewards["n_cases"],
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
        scores=Scores(
            by_role={str(k): float(v) for k, v in dict(row["scores"] or {}).items()},
            reason=str(row["reason"] or ""),
        ),
        players=json.loads(str(row["players_json"])),
        turns=tuple(Turn(Ask(role=role, text=text), reply) for role, text, reply in turns),
        facts=json.loads(str(row["facts_json"])),
        n_calls=int(row["n_calls"]),
        cost_usd=None if row["cost_usd"] is None else float(row["cost_usd"]),
    )
