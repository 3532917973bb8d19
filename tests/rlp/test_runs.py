"""Runs that think: tables, order of events, resumes, and thinkers that are of no use."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convergence.mock.running import MockServer
from convergence_core.errors import EvaluatorFault
from convergence_core.events import ThinkingStopped
from convergence_core.records import sha256_hex
from convergence_core.result import RunResult
from convergence_core.rlp.rows import REPLAY_SQL, replay_of
from convergence_core.store import ParquetStore
from convergence_core.target import WorstCase
from tasks.loading import load_mapping
from tasks.opening import prepare_run
from tasks.report import collect_progress
from tasks.runs import Run
from tasks.thoughts.asking import PREDICTION, THOUGHT
from tasks.thoughts.making import NO_LLM, spent_on
from tasks.thoughts.paying import Purse
from tests.support.configurations import chat_api, mapping
from tests.support.thinking_server import Kind, ThinkingWorld, thinking_server
from tests.support.thoughtful_runs import (
    STORE,
    begin,
    go_on,
    play,
    play_generation,
    truth,
    write_thoughtful,
)

REGION = {"x": [0.6, 0.8], "kind": "b"}


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    return ParquetStore(folder / STORE).rows(sql)


def run_whole(folder: Path, world: ThinkingWorld, **overrides: Any) -> list[Any]:
    """Run a project to its end; return what listeners were told."""
    events: list[Any] = []
    with thinking_server(world) as server:
        write_thoughtful(folder, server.url, **overrides)
        play(begin(folder, on_event=events.append))
    return events


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ThinkingWorld]:
    folder = tmp_path_factory.mktemp("good")
    world = ThinkingWorld(truth, "good", REGION)
    run_whole(folder, world)
    return folder, world


def test_every_thought_is_kept_with_its_gain_and_its_reason(good):
    folder, world = good
    found = rows(folder, "select * from thoughts order by generation, thought_id")
    assert {row["generation"] for row in found} == {1, 2, 3}
    assert len(found) == 9
    spoken = [row for row in found if row["agent_id"] != "none"]
    assert len(spoken) == world.n_asked["thought"]
    for row in spoken:
        assert row["estimator"] == "elicited"
        assert row["n_outcomes"] >= 4
        assert row["information_gain"] == pytest.approx(
            row["logp_with"] - row["logp_without"], abs=0.1
        )
        assert row["e_value"] > 0
        assert 0 <= row["weight"] < 1
        assert row["reason"] is None
    for row in found:
        if row["agent_id"] == "none":
            assert (row["information_gain"], row["text_sha256"]) == (0.0, None)
    texts = {
        row["payload_sha256"]: row["text"]
        for row in rows(folder, "select * from payloads where kind = 'thought'")
    }
    assert {row["text_sha256"] for row in spoken} == set(texts)
    assert all(sha256_hex(text) == key for key, text in texts.items())


def test_every_thought_was_durable_before_any_evaluation_of_its_generation(good):
    folder, _ = good
    found = rows(
        folder,
        "select t.created_at, p.committed_at, e.first from thoughts t "
        "join (select generation, min(started_at) as first from evaluations group by generation) e "
        "using (generation) join predictions p using (generation, thought_id) "
        "where t.created_at is not null",
    )
    assert found
    assert all(row["created_at"] <= row["committed_at"] < row["first"] for row in found)


def test_predictions_are_of_exogenous_candidates_and_add_up(good):
    folder, _ = good
    found = rows(folder, "select * from predictions")
    assert found
    for row in found:
        forecast = json.loads(row["forecast_json"])
        assert sum(forecast) == pytest.approx(1.0, abs=1e-6)
        assert 0 <= row["observed"] <= 9
        assert row["gain"] >= np.log(0.02)
    by_proposal = rows(
        folder,
        "select p.* from predictions p join candidates c on c.candidate_id = p.subject "
        "where c.origin = 'rlp' and c.generation = p.generation",
    )
    assert by_proposal == []


def test_each_generation_updates_the_policy(good):
    folder, _ = good
    found = rows(folder, "select * from policy_updates order by generation")
    assert [row["generation"] for row in found] == [1, 2, 3]
    assert len({row["params_sha256"] for row in found}) == 3
    stats = found[-1]["stats"]
    assert sum(v for k, v in stats.items() if k.startswith("p_")) == pytest.approx(1.0)
    assert sum(v for k, v in stats.items() if k.startswith("w_")) == pytest.approx(1.0)


def test_thoughts_are_paid_as_thoughts(good):
    folder, _ = good
    found = rows(folder, "select purpose, count(*) as n from attempts group by purpose")
    assert {row["purpose"] for row in found} == {"evaluation", "thought", "prediction"}


def test_the_result_tells_what_thoughts_were_worth(good):
    folder, _ = good
    result = RunResult.from_json(
        str(rows(folder, "select summary_json from runs")[0]["summary_json"])
    )
    found = result.thinking
    assert found is not None
    assert found.n_episodes == 3
    assert found.estimator == "elicited"
    gains = rows(
        folder,
        "select generation, avg(gain) as g from predictions where not is_rescored group by all",
    )
    assert found.gain == pytest.approx(np.mean([row["g"] for row in gains]))
    assert found.best is not None
    assert found.best.text.startswith("I know this world well")
    assert found.best.tested is not None
    evidence = rows(
        folder,
        "select exp(sum(ln(e))) as e from (select avg(e_value) as e from thoughts "
        "where e_value is not null group by generation)",
    )
    assert found.e_value == pytest.approx(evidence[0]["e"])
    assert found.sentence in next((folder / "results").glob("*/report.md")).read_text("utf-8")


# -- resumes


def begun(folder: Path) -> Run:
    """Open a run that the test will leave as a killed process does."""
    run = begin(folder)
    run.save("running")
    return run


def comparable(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        "thoughts": rows(
            folder,
            "select * exclude (created_at, run_id, thought_id) from thoughts order by all",
        ),
        "predictions": rows(
            folder,
            "select * exclude (committed_at, run_id, thought_id) from predictions order by all",
        ),
        "updates": rows(
            folder, "select * exclude (created_at, run_id) from policy_updates order by all"
        ),
        "candidates": rows(folder, "select * exclude (run_id) from candidates order by all"),
    }


@pytest.mark.parametrize("step", [pytest.param("sample", marks=pytest.mark.slow), "learn"])
@pytest.mark.slow
def test_a_run_left_between_commit_and_reveal_goes_on_as_if_it_had_not_been(
    tmp_path: Path, good, step: str
):
    unbroken, first_world = good
    world = ThinkingWorld(truth, "good", REGION)
    with thinking_server(world) as server:
        write_thoughtful(tmp_path, server.url)
        run = begun(tmp_path)
        play_generation(run)
        play_generation(run)
        assert not play_generation(run, stop_before=lambda name: name == step)
        asked = dict(world.n_asked)
        run.close()
        run = go_on(tmp_path)
        assert run.next_generation == 2
        play_generation(run)
        # Thoughts and predictions of the generation were bought before: nobody was asked again.
        assert dict(world.n_asked) == asked
        play(run)
    assert world.n_asked == first_world.n_asked
    mine, theirs = comparable(tmp_path), comparable(unbroken)
    # Thoughts of one world are alike whatever the run's id; nothing is written twice.
    assert mine == theirs
    n = rows(tmp_path, "select count(*) as n from (select distinct thought_id from thoughts)")
    assert n[0]["n"] == len(mine["thoughts"])


def test_an_outcome_that_is_older_than_the_commitment_counts_for_nothing(tmp_path: Path):
    world = ThinkingWorld(truth, "good")
    with thinking_server(world) as server:
        write_thoughtful(tmp_path, server.url)
        run = begun(tmp_path)
        play_generation(run)
        assert run.thinking is not None
        run.think()
        run.predict()
        commitment = run.thinking.commitment(1)
        assert commitment is not None
        trials = [run.session.evaluate(a, 1) for a in run.ask().assignments]
        run.thinking._commitment = replace(commitment, committed_us=2**62)
        taught = run.learn(trials).taught
        run.close()
    assert taught is not None
    assert taught.lesson.rows == ()
    assert any("before the predictions were durable" in note for note in taught.commitment.notes)


def test_memory_is_read_back_from_the_tables(good, tmp_path: Path):
    folder, _ = good
    run_id = rows(folder, "select run_id from runs")[0]["run_id"]
    found = ParquetStore(folder / STORE).rows(REPLAY_SQL, {"run_id": run_id})
    replay = replay_of(found, ["winners"], 10)
    assert len(replay) == 10
    everything = replay_of(found, ["winners"], 10_000)
    assert len(everything) == len(rows(folder, "select 1 from predictions"))
    assert all(thought.text for thought in everything.thoughts.values())
    assert everything.rows[0].generation == 1


# -- thinkers that are of no use


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    write_thoughtful(folder, None, society={"enabled": False})
    play(begin(folder))
    return folder


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("refusing", "refused (refusal)"),
        pytest.param("silent", "refused (empty_reply)", marks=pytest.mark.slow),
        pytest.param("failing", "failed (http_500)", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_a_thinker_without_a_thought_changes_nothing_but_a_recorded_reason(
    tmp_path: Path, plain: Path, kind: Kind, reason: str
):
    run_whole(
        tmp_path,
        ThinkingWorld(truth, kind),
        optimization__execution={
            "parallel_workers": 4,
            "max_retries": 0,
            "early_stopping": {"enabled": False},
        },
    )
    found = rows(tmp_path, "select * from thoughts where agent_id <> 'none'")
    assert found
    for row in found:
        assert row["reason"].startswith(reason), row["reason"]
        assert row["information_gain"] is None
        assert row["text_sha256"] is None
    assert rows(tmp_path, "select * from predictions") == []
    order = "select * exclude (run_id) from candidates order by all"
    assert rows(tmp_path, order) == rows(plain, order)


@pytest.mark.parametrize(
    "kind", ["rogue", *(pytest.param(k, marks=pytest.mark.slow) for k in ("foreign", "useless"))]
)
@pytest.mark.slow
def test_strange_thoughts_are_scored_like_any_other_and_propose_nothing(
    tmp_path: Path, kind: Kind
):
    run_whole(tmp_path, ThinkingWorld(truth, kind))
    assert rows(tmp_path, "select * from candidates where origin = 'rlp'") == []
    found = rows(tmp_path, "select * from thoughts where agent_id <> 'none'")
    assert all(row["reason"] is None for row in found)
    # With words that mean nothing to the predictor, both arms say the same.
    assert all(row["paper_gain"] == pytest.approx(0.0, abs=1e-9) for row in found)
    for row in rows(tmp_path, "select params_json from candidates"):
        assert 0.0 <= json.loads(row["params_json"])["x"] <= 1.0


@pytest.mark.slow
def test_a_model_that_only_compares_is_scored_on_pairs(tmp_path: Path):
    run_whole(tmp_path, ThinkingWorld(truth, "good", REGION, writes_weights=False))
    found = rows(tmp_path, "select * from thoughts where agent_id <> 'none'")
    assert found
    assert {row["estimator"] for row in found} == {"pairwise"}
    assert all(row["prediction"] is None for row in found)
    pairs = rows(tmp_path, "select * from predictions")
    assert pairs
    for row in pairs:
        assert len(row["subject"].split("|")) == 2
        assert row["observed"] in (0, 1)
        assert sum(json.loads(row["forecast_json"])) == pytest.approx(1.0)
    # It knows which is better, and its silent self does not.
    assert np.mean([row["paper_gain"] for row in pairs]) > 0.2
    # A pair is no prediction of a reward: proposals wait for an expert that has none.
    result = RunResult.from_json(
        str(rows(tmp_path, "select summary_json from runs")[0]["summary_json"])
    )
    assert result.thinking is not None
    assert result.thinking.best is not None
    assert result.thinking.best.tested is None


def test_one_text_in_several_generations_is_one_thought_each_time(tmp_path: Path):
    """While a run goes on, a text lies in the payloads of every generation that wrote it."""
    with thinking_server(ThinkingWorld(truth, "good", REGION)) as server:
        write_thoughtful(tmp_path, server.url)
        run = begun(tmp_path)
        for _ in range(3):
            play_generation(run)
        n_thoughts = len(rows(tmp_path, "select * from thoughts"))
        n_rows = len(rows(tmp_path, "select * from predictions"))
        report = collect_progress(run).thinking
        run.close()
        run = go_on(tmp_path)
        assert run.thinking is not None
        replay = run.thinking.replay
        run.close()
    assert report is not None
    assert report.n_thoughts + report.n_silent == n_thoughts
    assert len(replay) == n_rows


def test_offline_the_stand_in_thinks_and_nobody_is_paid(tmp_path: Path):
    cases = [
        {"id": f"c{i}", "input": {"q": f"What is {i} plus {i}?"}, "expected": str(2 * i)}
        for i in range(5)
    ]
    tree = mapping(
        api=chat_api("http://127.0.0.1:9"),
        search_space__parameters={"temperature": {"type": "float", "min": 0, "max": 1.5}},
        evaluation__test_cases=cases,
        optimization__evolution={"population_size": 4, "generations": 2},
        society={"enabled": True},
        llm={"model": "openai/thinker", "api_key_env": "NO_SUCH_KEY"},
    )
    tree["storage"] = {"path": "store"}
    with MockServer() as server:
        result = play(prepare_run(load_mapping(tree, tmp_path), mock_url=server.url))
    assert result.thinking is not None
    assert result.thinking.estimator == "elicited"
    assert result.thinking.n_thoughts > 0


def test_without_a_model_the_run_says_so_once_and_goes_on(tmp_path: Path, plain: Path):
    write_thoughtful(tmp_path, None)
    events: list[Any] = []
    play(begin(tmp_path, on_event=events.append))
    assert [e.text for e in events if isinstance(e, ThinkingStopped)] == [NO_LLM]
    order = "select * exclude (run_id) from candidates order by all"
    assert rows(tmp_path, order) == rows(plain, order)


@pytest.mark.slow
def test_without_a_probability_channel_nothing_is_scored_and_the_run_goes_on(
    tmp_path: Path, plain: Path
):
    world = ThinkingWorld(truth, "good")
    events = run_whole(tmp_path, world, society={"enabled": True, "rlp": {"use_logprobs": True}})
    (stopped,) = [e for e in events if isinstance(e, ThinkingStopped)]
    assert stopped.text.startswith("RLP off: no probability channel (echo: ")
    assert rows(tmp_path, "select * from thoughts") == []
    assert rows(tmp_path, "select * from predictions") == []
    assert world.n_asked["thought"] == 0
    order = "select * exclude (run_id) from candidates order by all"
    assert rows(tmp_path, order) == rows(plain, order)


# -- money


def test_the_purse_of_thoughts_is_closed_before_a_call_that_might_exceed_it():
    purse = Purse(limit_usd=1.0)
    first = purse.reserve(WorstCase(usd=0.8))
    with pytest.raises(EvaluatorFault, match="max_share_usd"):
        purse.reserve(WorstCase(usd=0.3))
    purse.settle(first, 0.1)
    second = purse.reserve(WorstCase(usd=0.3))
    purse.settle(second, None)
    assert purse.spent_usd == pytest.approx(0.4)
    assert Purse(limit_usd=None).reserve(WorstCase(usd=1e9)) == 1e9


def test_only_thoughts_of_committed_generations_were_spent():
    attempts: list[dict[str, Any]] = [
        {"purpose": "thought", "generation": 0, "cost_usd": 0.1, "maybe_usd": None},
        {"purpose": "prediction", "generation": 1, "cost_usd": None, "maybe_usd": 0.2},
        {"purpose": "prediction", "generation": 2, "cost_usd": 5.0, "maybe_usd": None},
        {"purpose": "evaluation", "generation": 0, "cost_usd": 7.0, "maybe_usd": None},
        {"purpose": "thought", "generation": None, "cost_usd": 9.0, "maybe_usd": None},
    ]
    assert spent_on((THOUGHT, PREDICTION), attempts, 2) == pytest.approx(0.3)
