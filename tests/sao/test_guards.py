"""Guards that fire by what a real server does, over rounds and runs: nothing is put into their state."""

from pathlib import Path
from typing import Any

import pytest

from convergence_core.sao.state import SaoState
from tasks.run.run import Run
from tasks.sao.history import history_of
from tasks.steps import prefer
from tasks.store import ParquetStore
from tests.support.planted_server import planted_server
from tests.support.preferring_runs import (
    STORE,
    World,
    begin,
    case_truth,
    go_on,
    learner_of,
    play_generation,
    write_preferring,
)

pytestmark = pytest.mark.slow


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    return ParquetStore(folder / STORE).rows(sql)


def state_of(run: Run) -> SaoState:
    return learner_of(run).state


# -- coverage


def test_an_alarm_ends_the_rounds_across_a_restart_until_a_person_has_looked(tmp_path: Path):
    sao: dict[str, Any] = {
        "every": 1, "n_samples": 70, "n_personas": 1_300, "iterative_rounds": 60, "audit_items": 0,
        "quality_filter": False,
    }  # fmt: skip
    world = Narrowing(truth=case_truth, spread=0.4)

    def write(**more: Any) -> None:
        write_preferring(
            tmp_path, server.url, society__sao={**sao, **more},
            optimization__evolution={"population_size": 3, "generations": 40},
        )  # fmt: skip

    with planted_server(world) as server:
        write()
        run = begin(tmp_path)
        with run:
            play_generation(run)
            play_generation(run)
            assert state_of(run).alarms.reference is not None
            world.is_narrow = True
            play_generation(run)
            assert state_of(run).alarms.is_stopped
        n_asked = world.n_asked["prompt"]
        for opened in (go_on, begin):
            run = opened(tmp_path)
            with run:
                assert state_of(run).alarms.is_stopped
                play_generation(run)
        assert world.n_asked["prompt"] == n_asked
        write(released_alarms=1)
        world.is_narrow = False
        run = begin(tmp_path)
        with run:
            play_generation(run)
            play_generation(run)
        assert world.n_asked["prompt"] == n_asked + 70


THREE_ROUNDS = {
    "every": 1,
    "n_samples": 70,
    "n_personas": 210,
    "audit_items": 60,
    "quality_filter": False,
}


def test_pairs_of_a_round_that_raised_an_alarm_of_coverage_teach_nothing(tmp_path: Path):
    world = Narrowing(truth=case_truth, spread=0.4)
    temperature = {"type": "float", "min": 0.0, "max": 1.5, "default": 1.2}
    system = {"type": "text", "variants": ["Be brief.", "Take steps."], "default": "Be brief."}
    with planted_server(world) as server:
        write_preferring(
            tmp_path, server.url, society__sao=THREE_ROUNDS,
            optimization__evolution={"population_size": 8, "generations": 3},
            search_space={
                "parameters": {"temperature": temperature, "system": {**system, "mutate": True}}
            },
        )  # fmt: skip
        run = begin(tmp_path)
        with run:
            play_generation(run)
            play_generation(run)
            before = state_of(run)
            assert [len(texts) for texts in before.variants.values()] == [1]
            world.is_narrow, world.distilled = True, "What about it?"
            prefer.fn(run.run_id, 2)
            pending = learner_of(run).pending
            assert pending is not None
            now, pairs = pending.finished.state, pending.finished.pairs
            assert now.alarms.is_stopped
            assert now.is_believed
            # A text was distilled from these pairs.
            assert world.n_asked["distilled"] == 2
            assert sum(pair.comparison.kind == "candidates" for pair in pairs) > 9
            assert now.variants == before.variants
            assert not any(pair.may_teach for pair in pairs)
            left = pending.finished.history
            play_generation(run)
            again = history_of(run.store, run.record)
            assert (again.pairs, again.texts) == (left.pairs, left.texts)
    told = rows(tmp_path, "select note, n_variants from preference_rounds order by generation")
    assert [row["n_variants"] for row in told] == [1, 0]
    assert told[0]["note"] is None
    assert told[1]["note"] == f"{now.alarms.why}; its pairs teach nothing"


class Narrowing(World):
    """Writes a handful of words while it is narrow."""

    is_narrow = False
    narrow_after: int | None = None
    """Prompts after which it is narrow; ``None``: when a test says so."""

    def _write(self, shown: str) -> Any:
        if self.narrow_after is not None:
            self.is_narrow = self.n_asked["prompt"] >= self.narrow_after
        self.prompt_of = (lambda _: "What about it?") if self.is_narrow else None
        return super()._write(shown)

    def _reply(self, body: dict[str, Any], shown: str) -> Any:
        self.vocabulary = 3 if self.is_narrow else None
        return super()._reply(body, shown)
