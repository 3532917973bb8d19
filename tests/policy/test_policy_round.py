"""A round of the policy on a real target: rollouts, verdicts, who serves, and what a kill leaves."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL
from typing import Any

import numpy as np
import pytest

from convergence.cli.options import EXIT_NO
from convergence_core.policy import PROMPT_ACTIONS, PromptEnvironment, PromptEpisode
from convergence_core.policy.course import RECORDED
from convergence_core.policy.gate import PPO, PolicyGate, PolicyVerdict
from tasks.inputs.loader import load
from tasks.policy.policy_round import (
    EMBEDDING_DIM,
    PolicyRoundReport,
    open_policy_round,
    play_round,
)
from tasks.policy.recorded_prompts import RecordedEdit, RecordedPrompts
from tasks.policy.records import PolicyQuestion, PolicySettings
from tasks.policy.served_policy import ServedPolicy
from tasks.store.policy.experience_store import ExperienceStore
from tasks.store.policy.round_store import RoundStore
from tests.support.children import start_child
from tests.support.writing_runs import PARENT, STORE, Scribe, begin, play, rows, write_project

FAST: dict[str, Any] = {
    "prompts__policy__episodes": 2,
    "prompts__policy__n_cases": 4,
}


def project(folder: Path, url: str | None = None, **overrides: Any) -> Path:
    """Write a project whose round is short."""
    return write_project(folder, url, **{**FAST, **overrides})


def played(config: Path, **options: Any) -> PolicyRoundReport:
    """Play a round."""
    with open_policy_round(load(config), **options) as opened:
        return play_round(opened)


def test_a_round_simulates_plays_learns_judges_and_says_who_serves(tmp_path: Path):
    config = project(tmp_path)
    play(begin(tmp_path))
    said: list[str] = []
    with open_policy_round(load(config)) as opened:
        assert opened.is_simulation_due
        report = play_round(opened, said.append)
    assert said[0].startswith("simulated: mean reward of a step")
    assert [line.split(":")[0] for line in said[1:]] == ["episode 1", "episode 2"]
    assert (report.n_episodes, report.n_missing, report.limit) == (2, 0, None)
    assert report.writer == "rules"
    assert report.gate.serves in {"bandit", "sequence"}
    assert {one.n for one in report.gate.verdicts} == {2}
    assert report.simulated is not None
    assert (report.updated, report.version) == (None, 1), "fewer steps than a minibatch"
    with ExperienceStore(tmp_path / STORE) as store:
        rounds = RoundStore(store)
        found = rounds.episodes("visitors")
        by_policy = {(one.policy, one.episode) for one in found}
        assert by_policy == {
            *((name, n) for name in ("ppo", "bandit", "sequence") for n in range(2)),
            *((name, RECORDED) for name in ("bandit", "sequence")),
        }
        starts = {(one.text_id, one.start_score) for one in found if one.episode == 0}
        assert len(starts) == 1, "all began with the same text, scored on the same cases"
        latest = rounds.latest_gate("visitors")
        assert [(one.baseline, one.serves) for one in latest] == [
            ("bandit", report.gate.serves), ("sequence", report.gate.serves),
        ]  # fmt: skip
        assert store.count() == sum(len(one.actions) for one in found if one.policy == PPO)


def test_rewards_are_differences_on_the_same_cases_less_the_price(tmp_path: Path):
    config = project(tmp_path, prompts__policy__price=0.05)
    played(config)
    with ExperienceStore(tmp_path / STORE) as store:
        for one in RoundStore(store).episodes("visitors"):
            if one.episode != RECORDED:
                n_edits = sum(action != "stop" for action in one.actions)
                assert one.reward == pytest.approx(one.gain - 0.05 * n_edits)
                assert len(one.verdicts) == n_edits
                assert one.category == "system"
                kept = sum(verdict == "kept" for verdict in one.verdicts)
                assert one.n_evaluations == 4 * (1 + kept)
    evaluated = rows(
        tmp_path,
        "SELECT count(*) AS n, count(DISTINCT e.candidate_id) AS c FROM evaluations e "
        "JOIN runs USING (run_id) WHERE name = 'visitors.policy'",
    )
    (one,) = evaluated
    assert one["n"] == 4 * one["c"] or one["n"] > one["c"]
    edits = rows(tmp_path, "SELECT DISTINCT operator FROM mutations")
    assert {row["operator"] for row in edits} <= set(PROMPT_ACTIONS)


def _stopped(config: Path) -> str:
    """Play one episode of a round and end as by Ctrl-C; return its run."""
    found = ""
    with suppress(KeyboardInterrupt), open_policy_round(load(config)) as opened:
        opened.play()
        found = opened.run_id
        raise KeyboardInterrupt
    return found


def test_a_round_that_was_stopped_goes_on_and_pays_nothing_twice(tmp_path: Path):
    config = project(tmp_path, prompts__policy__episodes=3)
    first = _stopped(config)
    with open_policy_round(load(config)) as opened:
        assert opened.run_id == first, "the same run goes on"
        assert opened.number == 1
        report = play_round(opened)
    assert report.n_episodes == 2
    assert {one.n for one in report.gate.verdicts} == {3}
    (paid,) = rows(
        tmp_path,
        "SELECT count(*) AS n, count(DISTINCT call_key) AS d FROM attempts "
        "WHERE state NOT IN ('cached', 'failed')",
    )
    assert paid["n"] == paid["d"] > 0
    (twice,) = rows(
        tmp_path,
        "SELECT count(*) - count(DISTINCT (run_id, candidate_id)) AS n FROM candidates",
    )
    assert twice["n"] == 0
    with open_policy_round(load(config)) as opened:
        assert opened.run_id != first, "a finished round is followed by another one"


def test_a_model_writes_and_its_texts_are_in_the_ledger(tmp_path: Path):
    scribe = Scribe()
    with scribe.server() as server:
        config = project(tmp_path, server.url)
        report = played(config)
    assert report.writer == "scribe"
    assert scribe.asked
    (paid,) = rows(
        tmp_path,
        "SELECT count(*) AS n, sum(cost_usd) AS usd FROM attempts WHERE purpose = 'writing'",
    )
    assert paid["n"] == len(scribe.asked)
    assert paid["usd"] > 0


def test_what_the_gate_names_is_what_serves(tmp_path: Path):
    config = project(tmp_path)
    question = PolicyQuestion(embedding=np.ones(EMBEDDING_DIM), episode=PromptEpisode())
    settings = PolicySettings.of("hashed-ngrams", EMBEDDING_DIM)
    report = played(config)
    with (
        ExperienceStore(tmp_path / STORE) as store,
        ServedPolicy(store, settings) as served,
    ):
        assert served.stats()["serves"] == report.gate.serves
        answer = served.decide(question)
        assert (answer.policy, answer.decision_id) == (report.gate.serves, None)
        assert served.decide(question).action == answer.action, "it draws nothing"
        own = served.decide(question, chooser="ppo")
        assert own.policy == PPO
        assert own.decision_id is not None
        verdicts = tuple(
            PolicyVerdict(baseline=one.baseline, decision="promote", n=99, mean=0.2, low=0.1,
                          high=0.3, log_e=9.0, log_threshold=3.0)
            for one in report.gate.verdicts
        )  # fmt: skip
        gate = PolicyGate(serves=PPO, reason="it earns more", verdicts=verdicts)
        RoundStore(store).record_gate("visitors", "later", 1, gate)
        served.choose_champion("visitors")
        assert served.decide(question).policy == PPO
        served.choose_champion("another system")
        assert served.stats()["serves"] == PPO, "nothing is known of that one"


def test_simulated_edits_are_worth_what_runs_have_recorded():
    edit = RecordedEdit(
        operator="expansion", category="wrong", effect=0.3, variance=1e-4, parent=PARENT
    )
    harm = RecordedEdit(
        operator="context-reduction", category="wrong", effect=-0.3, variance=1e-4, parent=PARENT
    )
    rng = np.random.default_rng(0)
    world = RecordedPrompts([PARENT], [edit, harm] * 5, rng, embedding_dim=64)
    environment = PromptEnvironment(world, max_steps=2)
    rewards: dict[str, list[float]] = {"expansion": [], "context-reduction": [], "reflect": []}
    for name, own in rewards.items():
        for _ in range(60):
            environment.begin(rng)
            assert environment.situation.failures == "wrong"
            own.append(environment.act(PROMPT_ACTIONS.index(name), rng).reward)
    means = {name: float(np.mean(own)) for name, own in rewards.items()}
    assert means["expansion"] > means["reflect"] > means["context-reduction"], means
    with pytest.raises(ValueError, match="`texts` must hold one text"):
        RecordedPrompts([], [], rng, embedding_dim=8)
    step = edit.step(5, 64)
    assert (PROMPT_ACTIONS[step.action], step.reward, str(step.state.dtype)) == (
        "expansion",
        0.3,
        "float32",
    )


def _promoted(verdicts: tuple[PolicyVerdict, ...]) -> PolicyGate:
    """Return a look that lets the policy serve."""
    found = tuple(
        replace(one, decision="promote", n=99, mean=0.2, low=0.1, high=0.3, log_e=9.0)
        for one in verdicts
    )
    return PolicyGate(serves=PPO, reason="it earns more", verdicts=found)


def test_a_verdict_holds_for_a_policy_and_its_updates_and_for_no_other(tmp_path: Path):
    config = project(tmp_path)
    report = played(config)
    settings = PolicySettings.of("hashed-ngrams", EMBEDDING_DIM)
    with ExperienceStore(tmp_path / STORE) as store:
        rounds = RoundStore(store)
        n_before = len(rounds.compared("visitors"))
        assert n_before == len(rounds.episodes("visitors"))
        with ServedPolicy(store, settings) as served:
            served.save("first")
            rounds.record_gate("visitors", "won", served.version, _promoted(report.gate.verdicts))
            served.choose_champion("visitors")
            assert served.stats()["serves"] == PPO
            served.load("first")
            assert served.stats()["serves"] == "bandit"
        assert rounds.compared("visitors") == []
        latest = rounds.latest_gate("visitors")
        assert {one.serves for one in latest} == {"bandit"}
        assert "a checkpoint was loaded" in latest[0].reason
    report = played(config)
    assert {one.n for one in report.gate.verdicts} == {2}, "of four, two were the loaded one's"
    assert max(one.n_episodes for one in report.course.curve) == 4, "curves show all"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_round_that_is_killed_goes_on_pays_nothing_twice_and_stores_each_episode_once(
    tmp_path: Path,
):
    config = project(tmp_path, prompts__policy__episodes=4)
    command = ("policy", "train", config, "--quiet", "--json")
    left = []
    for step in (650, 80):
        with start_child("tests.support.killed_command", tmp_path, step, *command) as child:
            child.communicate()
        assert child.returncode == -SIGKILL
        with ExperienceStore(tmp_path / STORE) as store:
            assert RoundStore(store).latest_gate("visitors") == [], "it was not at its end"
            left.append(len(RoundStore(store).episodes("visitors")))
    assert left[0] >= 5, (
        "an episode of each policy was played, and two begin with what is recorded"
    )
    with start_child("tests.support.killed_command", tmp_path, 0, *command) as child:
        said, _ = child.communicate()
    assert child.returncode == EXIT_NO, "a baseline serves"
    assert {one["n"] for one in json.loads(said)["gate"]["verdicts"]} == {4}
    (paid,) = rows(
        tmp_path,
        "SELECT count(*) AS n, count(DISTINCT call_key) AS d FROM attempts "
        "WHERE state NOT IN ('cached', 'failed')",
    )
    assert paid["n"] == paid["d"] > 0
    with ExperienceStore(tmp_path / STORE) as store:
        found = [one for one in RoundStore(store).episodes("visitors") if one.episode != RECORDED]
        places = [(one.run_id, one.policy, one.episode) for one in found]
        assert len(places) == len(set(places)) == 12
        n_steps = sum(len(one.actions) for one in found if one.policy == PPO)
        assert store.count() == n_steps, "steps are stored with their episode or not at all"
