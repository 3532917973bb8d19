"""Runs that think: tables, order of events, and resumes."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convergence.cost_estimate import estimate
from convergence_core.events import GenerationFinished
from convergence_core.records import canonical_json, sha256_hex
from convergence_core.result import RunResult
from convergence_core.rlp.gain import baseline_density, forecast_density, information_gain
from convergence_core.rlp.quantiles import Quantiles
from tasks.inputs.loader import load
from tasks.rlp.learner import shown
from tasks.run.run import Run
from tasks.secrets.process_redaction import hide
from tasks.secrets.redaction import Redactor
from tests.support.stepped_runs import begin, go_on, play, play_generation
from tests.support.thinking_server import ThinkingWorld, thinking_server
from tests.support.thoughtful_runs import (
    SETTING,
    learner_of,
    rows,
    run_whole,
    scored_thoughts,
    truth,
    write_thoughtful,
)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ThinkingWorld, list[Any]]:
    folder = tmp_path_factory.mktemp("good")
    world = ThinkingWorld(truth, "good", SETTING)
    return folder, world, run_whole(folder, world)


@pytest.fixture(scope="module")
def good(played: tuple[Path, ThinkingWorld, list[Any]]) -> tuple[Path, ThinkingWorld]:
    return played[:2]


def test_each_generation_says_what_its_thought_came_to(played):
    folder, _, events = played
    lines = [event.learning for event in events if isinstance(event, GenerationFinished)]
    (first,) = lines[0]
    assert first.startswith(
        "thoughts: information gain not measured, 0 episodes; weight 0.40; 1 proposal;"
    )
    found = rows(folder, "select information_gain as gain, agent_id from thoughts where generation > 0 "
                         "order by generation")  # fmt: skip
    assert len(found) == 3
    for n, ((line,), row) in enumerate(zip(lines[1:], found, strict=True), 1):
        assert line.startswith(
            f"thoughts: information gain {row['gain']:+.2f} nats, {n} episode{'s'[: n - 1]}; weight "
        )
        said = "I know this world well" if row["agent_id"] == "notes" else '{"forecasts"'
        assert f"reply: {said}" in line


def test_a_thought_is_shown_without_secrets_and_then_shortened():
    secret = "canary-of-a-thought-4821"  # noqa: S105 - not one
    hide(Redactor(values=[secret]))
    assert shown(f"{'x' * 140}\x1b {secret}\nmore") == f"{'x' * 140}\ufffd [redacted] more"
    assert shown(f"{'x' * 150} {secret}") == f"{'x' * 150} [redacte…"


def test_every_thought_is_kept_with_its_gain_and_its_propensity(good):
    folder, world = good
    found = rows(folder, "select * from thoughts order by generation, thought_id")
    assert [row["generation"] for row in found] == [0, 1, 2, 3]
    assert len(found) == world.n_asked["thought"]
    assert found[0]["agent_id"] == "start"
    assert (found[0]["n_outcomes"], found[0]["n_own"], found[0]["information_gain"]) == (
        0,
        1,
        None,
    )
    for row in found[1:]:
        p = {"none": 1 / 3, "notes": 2 / 3}[row["agent_id"]]
        assert np.exp(row["log_policy"]) <= p + 1e-9 or row["agent_id"] == "none"
        assert row["n_outcomes"] >= 4
        assert row["information_gain"] is not None
        assert row["e_value"] > 0
        assert 0 < row["weight"] < 1
        assert row["reason"] is None
    texts = {
        row["payload_sha256"]: row["text"]
        for row in rows(folder, "select * from payloads where kind = 'thought'")
    }
    assert {row["text_sha256"] for row in found} == set(texts)
    assert all(sha256_hex(text) == key for key, text in texts.items())


def test_a_setting_of_its_own_is_evaluated_in_the_first_generation(good):
    folder, _ = good
    (own,) = rows(folder, "select * from candidates where origin = 'rlp' and generation = 0")
    scored = rows(folder, "select * from predictions where is_own")
    assert [(row["generation"], row["subject"], row["gain"]) for row in scored] == [
        (0, own["candidate_id"], None)
    ]
    assert json.loads(scored[0]["forecast_json"]) == [0.8, 0.9, 0.99]
    assert scored[0]["outcome"] > 0.9


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
    assert {row["generation"] for row in found} == {0, 1, 2, 3}
    for row in found:
        record = {name: value for name, value in row.items() if name != "record_sha256"}
        assert row["record_sha256"] == sha256_hex(canonical_json(record))
    by_arm = {(row["generation"], row["arm"]): row for row in found}
    for row in rows(folder, "select * from predictions where not is_own"):
        for column, arm in (
            ("forecast_json", row["thought_id"]),
            ("statistical_json", "posterior"),
        ):
            committed = by_arm[row["generation"], arm]
            assert row["subject"] in json.loads(committed["subjects_json"])
            told = json.loads(committed["forecasts_json"])[row["subject"]]
            assert told == json.loads(row[column])
        # The gain follows from the row alone.
        assert row["gain"] == pytest.approx(information_gain(row["p"], row["baseline"]))
        posterior = Quantiles(*json.loads(row["statistical_json"]))
        forecast = Quantiles(*json.loads(row["forecast_json"]))
        assert row["baseline"] == pytest.approx(baseline_density(posterior, row["outcome"]))
        assert row["p"] == pytest.approx(forecast_density(forecast, posterior, row["outcome"]))
    for row in rows(folder, "select * from thoughts"):
        committed = by_arm[row["generation"], row["thought_id"]]
        assert sha256_hex(committed["text"]) == row["text_sha256"]
        assert sha256_hex(committed["prompt"]) == row["prompt_sha256"]


def test_a_prompt_holds_the_trials_before_its_generation_and_no_other(good):
    folder, _ = good
    trials = rows(
        folder,
        "select candidate_id, min(generation) as first from evaluations where role = 'search' "
        "and generation is not null group by all",
    )
    prompts = "select generation, prompt from commitments where prompt is not null"
    for row in rows(folder, prompts):
        table = json.loads(row["prompt"])[1]["content"].partition("Next trials")[0]
        told = [line for line in table.splitlines() if re.match(r"t\d+\|", line)]
        assert len(told) == sum(trial["first"] < row["generation"] for trial in trials)


def test_forecasts_are_of_candidates_chosen_without_the_thought(good):
    folder, _ = good
    found = rows(folder, "select * from predictions where not is_own")
    assert found
    assert all(row["gain"] >= np.log(0.02) for row in found)
    by_proposal = rows(
        folder,
        "select p.* from predictions p join candidates c on c.candidate_id = p.subject "
        "where c.origin = 'rlp' and c.generation = p.generation and not p.is_own",
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


def test_a_generation_costs_one_call(good):
    folder, world = good
    found = {
        r["purpose"]: r["n"]
        for r in rows(folder, "select purpose, count(*) as n from attempts group by purpose")
    }
    assert set(found) == {"evaluation", "thought"}
    assert found["thought"] == world.n_asked["thought"] == 4
    quoted = {r.role: r for r in estimate(load(folder / "optimization.yaml")).roles}[
        "thought"
    ].calls
    assert (quoted.expected, quoted.high) == (4, 8)


def test_the_result_tells_what_thoughts_were_worth(good):
    folder, _ = good
    result = RunResult.from_json(
        str(rows(folder, "select summary_json from runs")[0]["summary_json"])
    )
    found = result.thinking
    assert found is not None
    assert (found.n_episodes, found.n_thoughts, found.n_scored, found.n_failed) == (3, 4, 3, 0)
    gains = rows(
        folder, "select generation, avg(gain) as g from predictions where not is_own group by all"
    )
    assert found.gain == pytest.approx(np.mean([row["g"] for row in gains]))
    assert found.proposed is not None
    assert found.proposed.n == 1
    assert found.best is not None
    evidence = rows(
        folder, "select exp(sum(ln(e_value))) as e from thoughts where e_value is not null"
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
    updates = "select * exclude (created_at, run_id) from policy_updates order by all"
    return {**scored_thoughts(folder), "updates": rows(folder, updates)}


@pytest.mark.parametrize("step", [pytest.param("sample", marks=pytest.mark.slow), "learn"])
@pytest.mark.slow
def test_a_run_left_between_commit_and_reveal_goes_on_as_if_it_had_not_been(
    tmp_path: Path, good, step: str
):
    unbroken, first_world = good
    world = ThinkingWorld(truth, "good", SETTING)
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
        # The thought of the generation was bought before: nobody was asked again.
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
    (row,) = step.tables["thoughts"]
    assert row["reason"] == "no outcome could be scored"
