"""Runs of one system after each other: what the later ones know, and that a resume knows the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from convergence_core.judges.trust import Trust
from convergence_core.sao.state import SaoState
from tasks.run.run import Run
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.planted_server import planted_server
from tests.support.preferring_runs import learner_of, planted_world, write_preferring
from tests.support.stepped_runs import STORE, begin, play_generation

SMALL: dict[str, Any] = {
    "optimization__evolution": {"population_size": 4, "generations": 2},
    "society__sao": {"every": 1, "n_samples": 5, "n_personas": 20, "audit_items": 6},
}
KNOWN = SaoState(
    limit=3,
    n_rounds=3,
    asked=(1, 2),
    walk_to=100,
    trust=Trust(n_right=40, n_items=50, n_different=50),
    variants={"system": ("x",)},
)


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    return ParquetStore(folder / STORE).rows(sql)


def finish(run: Run) -> SaoState:
    """Take a run to its last generation; return what it has learned of preferences."""
    with run:
        while run.should_continue():
            play_generation(run)
        return learner_of(run).state


# -- what goes on


def test_a_further_run_begins_with_what_is_known_of_texts_and_judge():
    found = KNOWN.next_run(limit=5, n_personas=30, same_judge=True)
    assert (found.walk_from, found.walk_to) == (100, 130)
    assert (found.limit, found.n_rounds, found.stop_reason) == (5, 0, None)
    assert KNOWN.stop_reason == "all 3 rounds were run"
    assert found.trust == KNOWN.trust
    assert (found.asked, found.variants) == ((), {})
    assert SaoState.from_json(json.loads(json.dumps(found.to_json())), limit=5) == found


def test_of_another_judge_nothing_is_known():
    found = KNOWN.next_run(limit=5, n_personas=30, same_judge=False)
    assert found == SaoState(limit=5, walk_from=100, walk_to=130)


def test_a_checkpoint_of_an_earlier_version_opens():
    value = json.loads(json.dumps(KNOWN.to_json()))
    value |= {
        "rounds": {"n_done": 3, "best_agreement": 0.9, "why_ended": "x"}, "alarms": {"n_alarms": 2},
        "n_before": 3, "start_weight": 0.2, "weight": 0.05, "opinion": {"a": 0.5}, "drift": {"n": 3}, "n_silences": 1,
    }  # fmt: skip
    found = SaoState.from_json(value, limit=3)
    assert found == KNOWN


# -- runs


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[SaoState], Any]:
    """Return a store with two runs, what each had learned, and the world."""
    folder, world = tmp_path_factory.mktemp("two"), planted_world()
    with planted_server(world) as server:
        write_preferring(folder, server.url, **SMALL)
        states = [finish(begin(folder)), finish(begin(folder))]
    return folder, states, world


@pytest.mark.slow
def test_two_runs_ask_no_persona_and_no_prompt_twice(two):
    _, states, world = two
    asked = [set(state.asked) for state in states]
    assert [len(one) for one in asked] == [5, 5]
    assert not asked[0] & asked[1]
    prompts = [shown for what, shown in world.asked if what == "prompt"]
    assert len(set(prompts)) == len(prompts) == 10
