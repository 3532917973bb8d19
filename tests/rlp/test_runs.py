"""Runs that think: tables, order of events, and resumes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convergence.cost_estimate.estimate import estimate
from convergence_core.events import GenerationFinished
from convergence_core.records import canonical_json, sha256_hex
from convergence_core.result import RunResult
from convergence_core.rlp.rows import REPLAY_SQL, replay_of
from tasks.inputs.loader import load
from tasks.rlp.learner import shown
from tasks.run.result import collect_progress
from tasks.run.run import Run
from tasks.secrets.process_redaction import hide
from tasks.secrets.redaction import Redactor
from tasks.store import ParquetStore
from tests.support.thinking_server import ThinkingWorld, thinking_server
from tests.support.thoughtful_runs import (
    REGION,
    STORE,
    begin,
    go_on,
    learner_of,
    play,
    play_generation,
    rows,
    run_whole,
    truth,
    write_thoughtful,
)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ThinkingWorld, list[Any]]:
    folder = tmp_path_factory.mktemp("good")
    world = ThinkingWorld(truth, "good", REGION)
    return folder, world, run_whole(folder, world)


@pytest.fixture(scope="module")
def good(played: tuple[Path, ThinkingWorld, list[Any]]) -> tuple[Path, ThinkingWorld]:
    return played[:2]


def test_each_generation_says_what_its_thoughts_came_to(played):
    folder, _, events = played
    lines = [event.learning for event in events if isinstance(event, GenerationFinished)]
    assert lines[0] == ()
    found = rows(folder, "select avg(information_gain) as gain from thoughts where agent_id <> "
                         "'none' group by generation order by generation")  # fmt: skip
    for n, ((line,), row) in enumerate(zip(lines[1:], found, strict=True), 1):
        told = f"mean information gain {row['gain']:+.2f} nats, {n} episode{'s'[: n - 1]}; weighs most ("
        assert line.startswith(f"thoughts: {told}")
        assert "): I know this world well" in line


def test_a_thought_is_shown_without_secrets_and_then_shortened():
    secret = "canary-of-a-thought-4821"  # noqa: S105 - not one
    hide(Redactor(values=[secret]))
    assert shown(f"{'x' * 140}\x1b {secret}\nmore") == f"{'x' * 140}\ufffd [redacted] more"
    assert shown(f"{'x' * 150} {secret}") == f"{'x' * 150} [redacte…"


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
        assert row["information_gain"] is not None
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


def test_commitments_hold_all_that_scoring_needs_but_the_outcomes(good):
    folder, _ = good
    found = rows(
        folder,
        "select * exclude (committed_at), epoch_us(committed_at) as committed_at "
        "from commitments order by generation, arm",
    )
    assert {row["generation"] for row in found} == {1, 2, 3}
    for row in found:
        record = {name: value for name, value in row.items() if name != "record_sha256"}
        assert row["record_sha256"] == sha256_hex(canonical_json(record))
    by_arm = {(row["generation"], row["arm"]): row for row in found}
    for row in rows(folder, "select * from predictions where not is_rescored"):
        arms = {
            "forecast_json": row["thought_id"],
            "no_thought_json": "none",
            "statistical_json": "posterior",
        }
        for column, arm in arms.items():
            committed = by_arm[row["generation"], arm]
            assert row["subject"] in json.loads(committed["subjects_json"])
            told = json.loads(committed["forecasts_json"])[row["subject"]]
            assert told == json.loads(row[column])
    for row in rows(folder, "select * from thoughts where text_sha256 is not null"):
        committed = by_arm[row["generation"], row["thought_id"]]
        assert sha256_hex(committed["text"]) == row["text_sha256"]
        assert sha256_hex(committed["prompt"]) == row["prompt_sha256"]


def test_the_commitment_is_on_disk_before_anything_is_evaluated(tmp_path: Path):
    with thinking_server(ThinkingWorld(truth, "good")) as server:
        write_thoughtful(tmp_path, server.url)
        run = begun(tmp_path)
        play_generation(run)
        run.think("rlp")
        (path,) = (tmp_path / STORE / "live/commitments").glob("*/g00001.parquet")
        before = path.read_bytes()
        for _ in range(2):  # the generation, and the next
            play_generation(run)
        run.close()
    # The same answers make the same record, and publishing leaves it alone.
    assert path.read_bytes() == before


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


def test_an_estimate_holds_for_what_was_asked(good):
    folder, world = good
    found = {r.role: r for r in estimate(load(folder / "optimization.yaml")).roles}
    used = rows(folder, "select purpose, count(*) as n from attempts group by purpose")
    n_asked = {row["purpose"]: row["n"] for row in used}
    for name in ("thought", "prediction"):
        calls = found[name].calls
        assert calls.low <= n_asked[name] <= calls.high
    assert n_asked["thought"] == world.n_asked["thought"] <= 9


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
        run.think("rlp")
        learner = learner_of(run)
        commitment = learner.commitment(1)
        assert commitment is not None
        asked = run.study.ask(run.state)
        trials = [run.session.evaluate(a, 1) for a in asked.plan.assignments]
        learner._commitment = replace(commitment, committed_us=2**62)
        step = learner.learn(run.study, run.state, asked, trials)
        run.close()
    assert step.tables["predictions"] == []
    assert commitment.subjects
    reasons = {row["reason"] for row in step.tables["thoughts"] if row["agent_id"] != "none"}
    assert reasons == {"no outcome could be scored"}


def test_memory_is_read_back_from_the_tables(good, tmp_path: Path):
    folder, _ = good
    run_id = rows(folder, "select run_id from runs")[0]["run_id"]
    found = ParquetStore(folder / STORE).rows(REPLAY_SQL, {"run_id": run_id})
    everything = replay_of(found, ["winners"])
    assert len(everything) == len(rows(folder, "select 1 from predictions"))
    assert all(thought.text for thought in everything.thoughts.values())
    assert everything.rows[0].generation == 1


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
        replay = learner_of(run).replay
        run.close()
    assert report is not None
    assert report.n_thoughts + report.n_silent == n_thoughts
    assert len(replay) == n_rows
