"""Random use of approved hard cases in a search, and their effect on rewards."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from convergence_core.games.meta_critic import UNDECIDED, CaseReward, Coin, GameEffect, effects
from convergence_core.ports import RunRecord
from convergence_core.records import canonical_json
from tasks.inputs.cases import GAMES_TAG
from tasks.inputs.loader import Loaded
from tasks.store.tables.lineage import superseded
from tasks.store.tables.parquet_store import ParquetStore

CASES_TAG: Final = "game_cases"
"""Tag of a search: approved case → game, probability, whether the search uses it."""
NUMBER_TAG: Final = "game_search"
"""Tag of a search: its number among its system's searches with coins."""
_GAMES: Final = "SELECT DISTINCT 'game-' || play_id AS case_id, game FROM game_plays"
_REWARDS: Final = """
    SELECT run_id, generation, candidate_id, case_id, reward FROM evaluations
    WHERE run_id IN (SELECT unnest($runs)) AND role = 'search' AND generation IS NOT NULL AND reward IS NOT NULL
    ORDER BY ALL"""


def case_tag(store: ParquetStore, system: str, loaded: Loaded) -> dict[str, str]:
    """Return the tag with the coins of a new search's hard cases; empty if it has none.

    A coin is a function of the case, the seed and the search's number among those with coins.
    Cases whose plays are missing from the store share one unnamed game, which has no effect
    estimate.

    Args:
        store: Store of earlier searches and of the plays that produced the cases.
        system: Name of the run.
        loaded: Configuration and its cases.
    """
    hard = [case.case_id for case in loaded.search_cases if GAMES_TAG in case.tags]
    if not hard or len(hard) == len(loaded.search_cases):
        return {}
    game_of = {str(row["case_id"]): str(row["game"]) for row in store.rows(_GAMES)}
    known = game_effects(store, system)
    earlier = [int(record.tags.get(NUMBER_TAG, 0)) for record in store.runs(system)]
    number = max(earlier, default=0) + 1
    rows = {}
    for case_id in hard:
        game = game_of.get(case_id, "")
        probability = known[game].probability if game in known else UNDECIDED
        coin = Coin.of(
            case_id, game, probability, seed=f"{loaded.configuration.optimization.seed} {number}"
        )
        rows[case_id] = [coin.game, coin.probability, coin.is_used]
    return {CASES_TAG: canonical_json(rows), NUMBER_TAG: str(number)}


def coins_of(tags: Mapping[str, str]) -> dict[str, Coin]:
    """Return case → coin from a search's tags."""
    return {name: Coin(*row) for name, row in json.loads(tags.get(CASES_TAG, "{}")).items()}


def with_used_cases(loaded: Loaded, record: RunRecord) -> Loaded:
    """Return the loaded files without the search cases that the run's coins exclude."""
    coins = coins_of(record.tags)
    used = tuple(
        case
        for case in loaded.search_cases
        if case.case_id not in coins or coins[case.case_id].is_used
    )
    return replace(loaded, search_cases=used)


def game_effects(
    store: ParquetStore, system: str, *, before_us: int | None = None
) -> dict[str, GameEffect]:
    """Return game → effect, estimated from a system's searches with coins.

    Args:
        store: Store of the searches.
        system: Name of the searches.
        before_us: Upper bound of their start, in microseconds since the epoch.
    """
    runs = [
        record
        for record in store.runs(system)
        if before_us is None or record.started_us < before_us
    ]
    gone = superseded(runs)
    coins = {
        record.run_id: of_cases
        for record in runs
        if record.run_id not in gone and (of_cases := coins_of(record.tags))
    }
    rewards = []
    for row in store.rows(_REWARDS, {"runs": [*coins]}) if coins else ():
        coin = coins[str(row["run_id"])].get(str(row["case_id"]))
        rewards.append(
            CaseReward(
                run_id=str(row["run_id"]),
                generation=int(str(row["generation"])),
                candidate_id=str(row["candidate_id"]),
                case_id=str(row["case_id"]),
                game=None if coin is None else coin.game,
                reward=float(str(row["reward"])),
            )
        )
    return {game: effect for game, effect in effects(rewards).items() if game}
