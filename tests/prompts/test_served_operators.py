"""Runs whose edits the learned policy chooses: only where its gate has passed, and with exact propensities."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from convergence_core.config.prompts import OPERATORS, OperatorName
from convergence_core.policy import PROMPT_ACTIONS, PolicyIdentity, PPOState, pack
from convergence_core.policy.gate import PolicyGate, PolicyName, PolicyVerdict, serving_sentences
from convergence_core.prompts.policy import propensities, with_learned_shares
from tasks.policy.records import PolicySettings
from tasks.prompts.served_operators import SERVED_TAG, chooser_sentences, served_operators
from tasks.store.policy.checkpoint_files import CheckpointFiles
from tasks.store.policy.experience_store import ExperienceStore, PolicyVersionRecord
from tasks.store.policy.round_store import RoundStore
from tests.support.writing_runs import (
    STORE,
    begin,
    go_on,
    mutations,
    play,
    play_generation,
    write_project,
)

FAVOURITE = "constraint-addition"


def gate(serves: PolicyName) -> PolicyGate:
    """Return a look after which this policy serves."""
    verdicts = tuple(
        PolicyVerdict(
            baseline=name, decision="promote" if serves == "ppo" else "undecided", n=50, mean=0.1,
            low=0.01, high=0.2, log_e=4.0, log_threshold=3.0,
        )
        for name in ("bandit", "sequence")
    )  # fmt: skip
    return PolicyGate(serves=serves, reason="as the test says", verdicts=verdicts)


def learned(folder: Path, serves: PolicyName, *, embedding: str = "hashed-ngrams") -> None:
    """Put a policy into the store that does one action wherever it can, and a look of its gate."""
    settings = PolicySettings.of(embedding, 64)
    state = PPOState.begin(settings.ppo, np.random.default_rng(0))
    arrays = dict(state.networks.named())
    bias = next(view for name, view in arrays.items() if view.shape == (len(PROMPT_ACTIONS),))
    bias[PROMPT_ACTIONS.index(FAVOURITE)] = 20.0
    data = pack(state, settings.ppo, PolicyIdentity(embedding=embedding, actions=PROMPT_ACTIONS))
    with ExperienceStore(folder / STORE) as store:
        CheckpointFiles(store.root).write_version(0, data)
        store.record_version(
            PolicyVersionRecord(
                version=0, kind="begun", checkpoint=None, n_steps=0, statistics={}, created_us=1,
                sha256=hashlib.sha256(data).hexdigest(),
            )
        )  # fmt: skip
        RoundStore(store).record_gate("visitors", "round", 0, gate(serves))


def written(folder: Path, n: int = 5) -> list[str]:
    """Run some generations; return the operators of the edits."""
    with begin(folder) as run:
        tag = run.record.tags.get(SERVED_TAG)
        for _ in range(n):
            play_generation(run)
    return [str(tag), *(row["operator"] for row in mutations(folder))]


def test_edits_are_the_policys_only_where_its_gate_has_passed(tmp_path: Path):
    found = {}
    for name, serves in (("none", None), ("baseline", "bandit"), ("policy", "ppo")):
        write_project(tmp_path / name, None)
        if serves is not None:
            learned(tmp_path / name, serves)  # type: ignore[arg-type]
        found[name] = written(tmp_path / name)
    assert found["none"] == found["baseline"]
    assert found["policy"][0] == "0"
    known = [name for name in found["policy"][1:] if name in PROMPT_ACTIONS]
    assert known
    assert set(known) == {FAVOURITE}
    assert len({name for name in found["none"][1:] if name in PROMPT_ACTIONS}) > 1
    assert all(0.0 < row["propensity"] <= 1.0 for row in mutations(tmp_path / "policy"))


def test_a_run_that_goes_on_keeps_the_version_that_it_was_begun_with(tmp_path: Path):
    write_project(tmp_path, None)
    learned(tmp_path, "ppo")
    with begin(tmp_path) as run:
        play_generation(run)
    with ExperienceStore(tmp_path / STORE) as store:
        RoundStore(store).record_gate("visitors", "later", 1, gate("bandit"))
    with go_on(tmp_path) as run:
        play_generation(run)
        assert run.record.tags[SERVED_TAG] == "0"
    known = {row["operator"] for row in mutations(tmp_path)} & {*PROMPT_ACTIONS}
    assert known == {FAVOURITE}


def test_a_policy_of_another_embedding_chooses_nothing_and_the_run_says_why(tmp_path: Path):
    write_project(tmp_path, None)
    learned(tmp_path, "ppo", embedding="text-embedding-3-small")
    told: list[str] = []
    run = begin(tmp_path, on_notice=lambda notice: told.append(notice.text))
    with run:
        play_generation(run)
        play_generation(run)
    (said,) = (one for one in told if "the learned policy chooses no edits" in one)
    assert "text-embedding-3-small" in said
    assert mutations(tmp_path)


def test_the_policy_divides_the_share_of_what_it_knows_and_nothing_else():
    rng = np.random.default_rng(0)
    operators: list[OperatorName] = [*OPERATORS]
    p = propensities(operators, "wrong", (), rng)
    shares: dict[OperatorName, float] = {"expansion": 0.75, "reflect": 0.25}
    mixed = with_learned_shares(operators, p, shares)
    at = {name: i for i, name in enumerate(operators)}
    whole = p[at["expansion"]] + p[at["reflect"]]
    assert mixed[at["expansion"]] == pytest.approx(0.75 * whole)
    assert mixed[at["merge"]] == pytest.approx(p[at["merge"]])
    assert mixed.sum() == pytest.approx(1.0)
    assert with_learned_shares(operators, p, {}).tolist() == pytest.approx(p.tolist())


def test_a_hostile_text_is_left_to_thompson_sampling(tmp_path: Path):
    write_project(tmp_path, None)
    learned(tmp_path, "ppo")
    shares = served_operators(tmp_path / STORE, {SERVED_TAG: "0"})
    assert shares is not None
    assert shares("!!!", "none", ["expansion"]) == {}
    assert shares("Answer it.", "none", ["merge", "induce"]) == {}
    found = shares("Answer it. " * 20_000, "wrong", ["expansion", "reflect", "merge"])
    assert sum(found.values()) == pytest.approx(1.0)
    assert set(found) == {"expansion", "reflect"}
    assert served_operators(tmp_path / STORE, {}) is None


@pytest.mark.parametrize("serves", ["ppo", "bandit", "sequence"])
def test_the_report_says_who_chose_the_edits_and_why(tmp_path: Path, serves: PolicyName):
    write_project(tmp_path, None, output={"formats": ["markdown"]})
    learned(tmp_path, serves)
    result = play(begin(tmp_path))
    assert result.prompts is not None
    said = result.prompts.chooser
    why = " ".join(serving_sentences(serves, "as the test says"))
    who = "version 0 of the policy learned by PPO" if serves == "ppo" else "Thompson sampling"
    assert said.startswith(f"Edits were chosen by {who}")
    assert said.endswith(f"The latest look at policies of prompt changes: {why}")
    report = tmp_path / "results" / result.label / "report.md"
    assert said in report.read_text(encoding="utf-8")


def test_where_the_version_cannot_be_read_the_report_says_who_chose_instead(tmp_path: Path):
    write_project(tmp_path, None)
    learned(tmp_path, "ppo", embedding="text-embedding-3-small")
    said = chooser_sentences(tmp_path / STORE, "visitors", {SERVED_TAG: "0"})
    assert said.startswith("Edits were chosen by Thompson sampling")
    assert "text-embedding-3-small" in said
    said = chooser_sentences(tmp_path / STORE, "another", {})
    assert said.endswith("no policy of prompt changes was trained for this system.")
