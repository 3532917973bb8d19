"""Runs of one system after each other: what the later ones know, and that a resume knows the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from convergence_core.judges.coverage import Alarms
from convergence_core.judges.trust import Trust
from convergence_core.sao.history import texts_of
from convergence_core.sao.preferences import Answer, Comparison, JudgedPair, Judgement
from convergence_core.sao.rounds import Rounds
from convergence_core.sao.state import SaoState
from tasks.run.run import Run
from tasks.store import ParquetStore
from tests.sao.test_coverage import FULL
from tests.support.planted_server import planted_server
from tests.support.preferring_runs import (
    STORE,
    begin,
    learner_of,
    planted_world,
    play_generation,
    write_preferring,
)

SMALL: dict[str, Any] = {
    "optimization__evolution": {"population_size": 4, "generations": 2},
    "society__sao": {"every": 1, "n_samples": 5, "n_personas": 20, "audit_items": 6},
}
KNOWN = SaoState(
    rounds=Rounds(limit=3, n_done=3, best_agreement=0.9, stop_reason="all 3 rounds were run"),
    asked=(1, 2),
    walk_to=100,
    alarms=Alarms(reference=FULL, n_alarms=2),
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
    assert found.rounds == Rounds(limit=5, best_agreement=0.9)
    for name in ("alarms", "trust"):
        assert getattr(found, name) == getattr(KNOWN, name), name
    assert (found.asked, found.variants) == ((), {})
    assert SaoState.from_json(json.loads(json.dumps(found.to_json())), limit=5) == found


def test_each_text_counts_as_often_as_it_was_written():
    def pair(first: str, second: str, prompt: str = "p", persona: int = 1) -> JudgedPair:
        return JudgedPair(
            comparison=Comparison(
                prompt=prompt, first=Answer(text=first, author="x"),
                second=Answer(text=second, author="x"), kind="incumbent", persona=persona,
            ),
            judgement=Judgement(p12=0.9, p21=0.9, estimator="chat"), dropped_by=None,
            round_number=0, position=0,
        )  # fmt: skip

    three = [pair("a", "b"), pair("a", "c"), pair("b", "c")]
    assert texts_of(three) == ["p", "a", "b", "c"]
    # What was written twice is a copy: by another persona, as another answer.
    assert texts_of([*three, pair("d", "e", persona=2)])[4:] == ["p", "d", "e"]
    assert texts_of([pair("a", "a"), pair("a", "b")]) == ["p", "a", "a", "b"]


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
    folder, states, world = two
    asked = [set(state.asked) for state in states]
    assert [len(one) for one in asked] == [5, 5]
    assert not asked[0] & asked[1]
    prompts = [shown for what, shown in world.asked if what == "prompt"]
    assert len(set(prompts)) == len(prompts) == 10
    told = rows(folder, "select coverage from preference_rounds order by run_id")
    # The window of the second run holds the texts of the first.
    assert [row["coverage"]["n_texts"] for row in told] == [15.0, 30.0]
