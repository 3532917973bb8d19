"""``convergence policy train``: what it says, its JSON, its exit code, and the tables after it."""

from pathlib import Path

import pytest

from tasks.serving.fold import fold_store
from tests.support.commands import Runner
from tests.support.writing_runs import STORE, rows, write_project


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A project whose round is short."""
    path = write_project(
        tmp_path, None, prompts__policy__episodes=2, prompts__policy__n_cases=3,
    )  # fmt: skip
    return str(path)


@pytest.mark.slow
def test_a_round_says_who_serves_and_why(cli: Runner, config: str, tmp_path: Path):
    done = cli("policy", "train", config)
    assert done.code == 100, done.err
    assert "2 episodes played by each policy." in done.out
    assert "serves: 2 episodes do not show that the policy learned by PPO earns more" in done.out
    assert "episode 2:" in done.err
    assert done.err.rstrip().endswith("In the browser: convergence ui")
    for word in ("bandit", "fixed sequence", "Mean reward against evaluations"):
        assert word in done.out
    again = cli("policy", "train", config, "--json", "--set", "prompts.policy.episodes=1")
    assert again.code == 100, again.err
    assert again.json["gate"]["serves"] in {"bandit", "sequence"}
    assert {one["n"] for one in again.json["gate"]["verdicts"]} == {3}
    assert again.json["course"]["curve"][0]["n_evaluations"] > 0
    counts = fold_store(tmp_path / STORE).policy
    assert counts["policy_episodes"] == 3 * 3 + 2, "two begin with what was recorded: nothing here"
    assert counts["policy_gates"] == 4
    found = rows(tmp_path, "SELECT DISTINCT serves FROM policy_gates WHERE run_id = "
                           "(SELECT max(run_id) FROM policy_gates)")  # fmt: skip
    assert [row["serves"] for row in found] == [again.json["gate"]["serves"]]
    refused = cli("resume", again.json["label"], "--store", str(tmp_path / STORE))
    assert refused.code == 2
    assert "Run `convergence policy train` again" in refused.err


def test_a_key_of_the_round_that_breaks_its_rule_is_named(cli: Runner, config: str):
    done = cli("policy", "train", config, "--set", "prompts.policy.max_share=2")
    assert done.code == 2
    assert "prompts.policy.max_share" in done.err
