"""Guards that fire by what a real server does, over rounds and runs: nothing is put into their state."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from convergence_core.judges.trust.exploitation import N_ROUNDS
from convergence_core.records import canonical_json
from convergence_core.sao.state import SaoState
from tasks.run.run import Run
from tasks.sao.dataset import dataset_of, read_dataset
from tasks.sao.history import history_of
from tasks.steps import prefer
from tasks.store import ParquetStore
from tests.sao.mixin import write
from tests.support.http_server import LoopbackServer
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


def test_three_collapses_end_what_is_written_across_a_restart_until_a_person_acts(tmp_path: Path):
    # A round of 70 prompts fills a window with answers, and another window of prompts alone.
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

    n_alarms, n_rows_stopped, n_resumed = 0, 0, 0
    with planted_server(world) as server:
        write()
        run = begin(tmp_path)
        with run:
            play_generation(run)
            play_generation(run)
            assert state_of(run).alarms.reference is not None
            while not state_of(run).alarms.is_off and run.next_generation < 30:
                before = state_of(run).alarms
                # It collapses whenever it may write rows, and recovers as soon as it may not.
                world.is_narrow = before.gives_rows
                answered = world.n_asked["answer"]
                play_generation(run)
                after = state_of(run).alarms
                n_alarms += after.n_alarms > before.n_alarms
                if not before.gives_rows:
                    n_rows_stopped += 1
                    assert world.n_asked["answer"] == answered
                    n_resumed += after.gives_rows
                    assert not after.gives_rows or before.n_clean == 1
            assert state_of(run).alarms.is_off
        assert (n_alarms, n_resumed) == (3, 2)
        # The prompts are as varied as before, though much less so than the answers: two rounds suffice.
        assert n_rows_stopped == 2 * n_resumed
        n_asked = world.n_asked["prompt"]
        run = go_on(tmp_path)
        with run:
            assert state_of(run).alarms.is_off
            play_generation(run)
        run = begin(tmp_path)
        with run:
            play_generation(run)
            play_generation(run)
            assert state_of(run).alarms.is_off
        assert world.n_asked["prompt"] == n_asked
        write(released_alarms=3)
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


def test_rows_of_a_round_that_raised_an_alarm_of_coverage_are_not_exported(tmp_path: Path):
    world = Narrowing(truth=case_truth, spread=0.4)
    with planted_server(world) as server:
        write_preferring(
            tmp_path, server.url, society__sao=THREE_ROUNDS,
            optimization__evolution={"population_size": 6, "generations": 3},
        )  # fmt: skip
        run = begin(tmp_path)
        with run:
            play_generation(run)
            play_generation(run)
            world.is_narrow = True
            play_generation(run)
            assert state_of(run).alarms.is_stopped
            assert state_of(run).trust.is_enabled
    store = ParquetStore(tmp_path / STORE)
    dataset = dataset_of(store, "codes", split="all")
    every = dataset_of(store, "codes", split="all", anyway=True)
    kept = rows(tmp_path, "select round, count(*) as n from preferences where dropped_by is null "
                          "group by round order by round")  # fmt: skip
    assert [row["round"] for row in kept] == [0, 1]
    assert dataset.n_collapsed == kept[1]["n"]
    assert len(dataset.pairs) == kept[0]["n"]
    assert {row["round"] for row in dataset.evidence} == {0}
    assert {row["round"] for row in every.evidence} == {0, 1}
    assert "raised an alarm of coverage" in every.doubts[0]


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
            now, pairs = pending.found.state, pending.found.pairs
            assert now.alarms.is_stopped
            assert now.is_believed
            # A text was distilled from these pairs.
            assert world.n_asked["distilled"] == 2
            assert sum(pair.comparison.kind == "candidates" for pair in pairs) > 9
            assert now.variants == before.variants
            assert not any(pair.may_teach for pair in pairs)
            left = pending.found.history
            play_generation(run)
            again = history_of(run.store, run.record)
            assert (again.pairs, again.texts) == (left.pairs, left.texts)
    told = rows(tmp_path, "select note, n_variants from preference_rounds order by generation")
    assert [row["n_variants"] for row in told] == [1, 0]
    assert told[0]["note"] is None
    assert told[1]["note"] == f"{now.alarms.why}; its pairs teach nothing"


def test_a_program_of_ones_own_exports_no_row_of_a_call_that_raised_an_alarm(tmp_path: Path):
    world = Narrowing(truth=case_truth, spread=2.0)
    world.narrow_after = 110
    sao, found = write(
        world, 2, n_samples=110, n_grounded=50, n_personas=220, quality_filter=False
    )
    assert [one.stop_reason is None for one in found] == [True, False]
    assert sao.trust.is_enabled
    sure = [pair for pair in found[0].kept if pair.split == "train"]
    assert any(pair.split == "train" for pair in found[1].kept)
    every = sao.export_dataset(tmp_path / "every.jsonl", anyway=True)
    assert "What about it?" in every["rows"].read_text("utf-8")
    assert sao.trust.is_enabled
    assert {pair.round_number for pair in sao.pairs if pair.may_teach} == {0}
    files = sao.export_dataset(tmp_path / "rows.jsonl")
    assert [pair.comparison.prompt for pair in read_dataset(files["rows"]).pairs] == [
        pair.comparison.prompt for pair in sure
    ]


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


# -- exploitation and drift


class Pleased(World):
    """A judge who loves the answers of one candidate, and a world in which ever fewer cases can be answered."""

    beloved: Mapping[str, Any] = MappingProxyType({})
    """Parameters of the candidate."""
    love: float = 0.0
    """Quality that its answers have more than others."""
    n_lost: int = 0
    """Cases that nobody can answer any more."""

    def _reply(self, body: dict[str, Any], shown: str) -> Any:
        self.quality = self._liked
        n = str(body["messages"][-1]["content"]).partition("Case ")[2].partition(":")[0]
        if n.isdigit() and int(n) < self.n_lost:
            body = {**body, "temperature": 9.0}
        return super()._reply(body, shown)

    def _liked(self, body: dict[str, Any]) -> float:
        return self.love * all(body.get(name) == value for name, value in self.beloved.items())


def play_round(run: Run, world: Pleased) -> str:
    """Play a generation before which the judge has come to love the incumbent; return this."""
    leader = run.study.leader(run.state)
    assert leader is not None
    world.beloved = leader.params
    play_generation(run)
    return canonical_json(dict(leader.params))


def play_run(
    folder: Path, server: LoopbackServer, world: Pleased, seed: int
) -> tuple[SaoState, str]:
    """Play a run with one round; return what it has learned and the incumbent of its round."""
    write_preferring(
        folder,
        server.url,
        optimization__seed=seed,
        optimization__evolution={"population_size": 8, "generations": 2},
        society__sao={"every": 1, "n_samples": 30, "n_personas": 30, "audit_items": 60},
    )
    run = begin(folder)
    with run:
        play_generation(run)
        incumbent = play_round(run, world)
        return state_of(run), incumbent


def test_who_learns_to_please_the_judge_is_caught_and_the_best_by_rewards_restored(tmp_path: Path):
    world = Pleased(truth=case_truth, spread=0.2)
    found: SaoState | None = None
    incumbents: list[str] = []
    with planted_server(world) as server:
        while found is None or (not found.exploitation.is_frozen and len(incumbents) < 10):
            n = len(incumbents)
            # The judge likes it the better, the fewer cases it answers.
            world.love, world.n_lost = 0.35 * n, 2 * n
            found, incumbent = play_run(tmp_path, server, world, seed=n)
            incumbents.append(incumbent)
        assert found.exploitation.is_frozen, found.exploitation
        assert found.is_silenced
        assert len(incumbents) >= N_ROUNDS
        rewards = [one.grounded_mean for one in found.exploitation.rounds]
        # Of the best rounds the last one.
        best = max(range(N_ROUNDS), key=lambda k: (rewards[k], k))
        restored = incumbents[-N_ROUNDS:][best]
        assert best < N_ROUNDS - 1
        assert found.exploitation.restored == restored != incumbents[-1]
        # The next run answers with it again, to the bit, and listens to nobody.
        n_before = len(server.requests)
        after, other = play_run(tmp_path, server, world, seed=99)
        assert other != restored
        assert not after.is_believed
        bodies = [r.body for r in server.requests[n_before:]]
    params = json.loads(restored)
    warm = [body for body in bodies if body["model"] == "system" and body["temperature"] == 0.6]
    assert len(warm) == 30  # half of the prompts, twice
    assert {body["top_p"] for body in warm} == {params["top_p"]}
    told = rows(tmp_path, "select run_id, is_frozen from preference_rounds order by run_id")
    assert [row["is_frozen"] for row in told] == [False] * (len(incumbents) - 1) + [True, True]
    # Nothing that was judged since is among the rows to train on.
    dataset = dataset_of(ParquetStore(tmp_path / STORE), "codes", split="all")
    assert not {row["run_id"] for row in dataset.evidence} & {row["run_id"] for row in told[-2:]}
    assert dataset.pairs
    assert dataset.n_unvouched > 0


def test_a_judge_who_begins_to_love_the_incumbent_is_found_to_drift(tmp_path: Path):
    world = Pleased(truth=case_truth, spread=0.3)
    with planted_server(world) as server:
        write_preferring(
            tmp_path,
            server.url,
            optimization__evolution={"population_size": 4, "generations": 30},
            society__sao={"every": 1, "n_samples": 12, "n_personas": 400, "audit_items": 10,
                          "iterative_rounds": 60},
        )  # fmt: skip
        run = begin(tmp_path)
        with run:
            play_generation(run)
            while run.next_generation <= 16:
                play_round(run, world)
                assert not state_of(run).drift.is_alarming
            n_quiet, world.love = state_of(run).rounds.n_done, 8.0
            while not state_of(run).drift.is_alarming and run.next_generation < 28:
                play_round(run, world)
            state = state_of(run)
    assert state.drift.is_alarming, state.drift
    assert state.drift.up > state.drift.down
    assert state.rounds.n_done <= n_quiet + 10
    assert state.is_silenced
    assert not state.is_believed
    dataset = dataset_of(ParquetStore(tmp_path / STORE), "codes", split="all")
    judged_last = state.rounds.n_done - 1
    assert max(pair.round_number for pair in dataset.pairs) < judged_last
    assert dataset.n_unvouched > 0
