"""Approved hard cases in searches: a random part by stored coins, and the effect of what was used."""

import json
from pathlib import Path

import pytest

from convergence_core.games.meta_critic import Coin
from tasks.games.game_cases import CASES_TAG, coins_of, game_effects
from tasks.inputs.loader import load
from tasks.inputs.storage import new_record
from tasks.run.opener import prepare_run
from tasks.store.tables.parquet_store import ParquetStore
from tests.games.game_worlds import KUHN, write_games
from tests.support.stepped_runs import STORE, begin, go_on, play, play_generation
from tests.support.store_rows import generation_tables
from tests.support.writing_runs import rows

N_CASES = 10


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with ten approved cases of a game, and a case whose play is gone."""
    config = write_games(
        tmp_path, "http://127.0.0.1:9", KUHN, evaluation__test_cases__approved="approved.jsonl",
        evaluation__test_cases__holdout=0.0,
        search_space__parameters={"warmth": {"type": "float", "min": 0.0, "max": 1.0, "default": 0.5}},
        optimization__evolution={"population_size": 6, "generations": 2},
    )  # fmt: skip
    (tmp_path / "target.py").write_text(
        "def ask(text, warmth):\n"
        "    label = 'positive' if 'good' in text or 'great' in text else 'negative'\n"
        "    return label if int(warmth * 20) % 2 else 'unsure'\n",
        encoding="utf-8",
    )
    loaded = load(config)
    store = ParquetStore(tmp_path / STORE)
    record = new_record(loaded, name="visitors.games", tags={"games": "true"})
    store.save_run(record)
    plays = [
        {"run_id": record.run_id, "generation": 0, "play_id": f"p{n}", "game": "sums"}
        for n in range(N_CASES)
    ]
    tables = generation_tables(record.run_id, 0, 0)
    store.publish(record.run_id, 0, {"generations": tables["generations"], "game_plays": plays})
    cases = [
        {"id": f"game-p{n}", "input": {"text": f"Hard visit {n} was good"}, "expected": "positive",
         "tags": ["games"]}
        for n in [*range(N_CASES), 99]
    ]  # fmt: skip
    text = "\n".join(map(json.dumps, cases))
    (tmp_path / "approved.jsonl").write_text(f"{text}\n", encoding="utf-8")
    return tmp_path


def tossed(probabilities: dict[str, float], seed: str) -> dict[str, Coin]:
    """Return the coins of the project's cases; game "" has the one whose play is gone."""
    game_of = {**{f"game-p{n}": "sums" for n in range(N_CASES)}, "game-p99": ""}
    return {
        name: Coin.of(name, game, probabilities[game], seed=seed) for name, game in game_of.items()
    }


def test_a_search_uses_a_random_half_and_learns_from_what_it_used(project: Path):
    with begin(project) as run:
        coins = coins_of(run.record.tags)
        assert coins == tossed({"sums": 0.5, "": 0.5}, "5 1"), "by case, seed and night"
        used = {name for name, coin in coins.items() if coin.is_used}
        assert 0 < len(used) < N_CASES
        asked = {case.case_id for case in run.loaded.search_cases}
        assert {name for name in asked if name.startswith("game-")} == used
        play_generation(run)
        run.save("stopped")
    with go_on(project) as run:
        assert coins_of(run.record.tags) == coins, "a resumed search keeps its coins"
        play(run)
    found = rows(project, "SELECT DISTINCT case_id FROM evaluations WHERE role = 'search'")
    evaluated = {row["case_id"] for row in found}
    assert {name for name in evaluated if name.startswith("game-p")} <= used
    store = ParquetStore(project / STORE)
    known = game_effects(store, "visitors")
    assert known.keys() == {"sums"}, "the game of a lost play has no effect"
    effect = known["sums"]
    assert effect.n_cases == len(used & evaluated - {"game-p99"})
    assert effect.mean > 0.0, "settings that pass its cases pass the others"
    assert game_effects(store, "visitors", before_us=0) == {}
    with begin(project) as run:
        again = coins_of(run.record.tags)
    assert again == tossed({"sums": effect.probability, "": 0.5}, "5 2"), (
        "the next night tosses anew"
    )


def test_a_test_of_the_settings_and_a_search_without_plays_have_no_coins(project: Path):
    with prepare_run(load(project / "optimization.yaml"), part="test") as run:
        assert CASES_TAG not in run.record.tags
        assert len(run.loaded.search_cases) == 24 + N_CASES + 1
