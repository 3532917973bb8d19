"""A policy that is served: decisions, reports that are durable, updates, checkpoints."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from convergence_core.errors import (
    PolicyCheckpointError,
    PolicyDecisionNotFoundError,
    PolicyRequestError,
)
from convergence_core.policy.prompt_state import N_PROGRESS, PROMPT_ACTIONS, STOP, PromptEpisode
from convergence_core.policy.settings import PPOConfig
from tasks.policy.records import ChosenAction, ExperienceReport, PolicyQuestion, PolicySettings
from tasks.policy.served_policy import ServedPolicy
from tasks.store.policy.experience_store import VERSIONS, ExperienceStore
from tests.store.postgres_server import postgres_server

DIM = 4


def settings(dim: int = DIM, embedding: str = "given", **more: object) -> PolicySettings:
    ppo = PPOConfig(
        input_dim=dim + N_PROGRESS, action_dim=len(PROMPT_ACTIONS), hidden_dim=8, batch_size=4,
        buffer_size=64, learning_rate=0.01,
    )  # fmt: skip
    return PolicySettings.of(embedding, dim, ppo=ppo, **more)


def question(*history: str, of: int = 0) -> PolicyQuestion:
    return PolicyQuestion(embedding=np.eye(DIM)[of % DIM].tolist(), history=history, score=0.5)  # type: ignore[arg-type]


def episode(given: PolicyQuestion) -> PromptEpisode:
    return PromptEpisode(history=given.history, score=given.score)


def report(answer: ChosenAction, reward: float = 0.5, **more: object) -> ExperienceReport:
    return ExperienceReport(
        decision_id=str(answer.decision_id), episode_id=answer.episode_id, step=answer.step,
        reward=reward, **{"terminated": True, "truncated": False, **more},  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ExperienceStore]:
    with ExperienceStore(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def policy(store: ExperienceStore) -> Iterator[ServedPolicy]:
    with ServedPolicy(store, settings()) as opened:
        yield opened


def test_a_report_is_stored_with_all_that_the_policy_knew(
    policy: ServedPolicy, store: ExperienceStore
):
    answer = policy.decide(question())
    assert all(answer.mask)
    assert sum(answer.probabilities) == pytest.approx(1.0)
    receipt = policy.take(report(answer, -0.25))
    assert (receipt.status, receipt.policy_version) == ("stored", 0)
    stored = store.experience(str(answer.decision_id))
    assert stored is not None
    assert PROMPT_ACTIONS[stored.decision.action] == answer.action
    assert stored.decision.log_prob == answer.log_prob
    assert stored.decision.observation.tolist() == (
        episode(question()).observation(np.eye(DIM)[0]).tolist()
    )
    assert stored.outcome.reward == -0.25
    assert policy.take(report(answer, -0.25)).status == "duplicate"
    with pytest.raises(PolicyRequestError, match=r"has another outcome already: reward -0\.25"):
        policy.take(report(answer, 0.25))
    assert store.count() == 1


def test_used_and_excluded_actions_are_never_chosen(policy: ServedPolicy):
    excluded = ("reflect", "expansion", STOP)
    asked = replace(question("context-reduction"), excluded=excluded)  # type: ignore[arg-type]
    for _ in range(50):
        drawn = policy.decide(asked)
        assert drawn.action not in {"context-reduction", "reflect", "expansion"}
    answer = policy.decide(asked, deterministic=True)
    assert answer.decision_id is None
    assert answer.mask[PROMPT_ACTIONS.index(STOP)]
    assert [answer.probabilities[PROMPT_ACTIONS.index(n)] for n in ("reflect", "expansion")] == [
        0,
        0,
    ]


def test_what_is_wrong_is_refused_and_nothing_changes(
    policy: ServedPolicy, store: ExperienceStore
):
    first = policy.decide(question())
    embeddings: list[tuple[str, list[float]]] = [
        ("must have 4 numbers", [1.0]),
        ("finite", [1.0, float("nan"), 0.0, 0.0]),
        ("all of them", [0.0] * 4),
    ]
    for rule, embedding in embeddings:
        with pytest.raises(PolicyRequestError, match=rule):
            policy.decide(PolicyQuestion(embedding=embedding))
    with pytest.raises(PolicyRequestError, match="`step` must be new in its episode"):
        policy.decide(question(), episode_id=first.episode_id)
    for wrong in ({"step": 3}, {"episode_id": "other"}):
        with pytest.raises(PolicyRequestError, match="must be that of the decision"):
            policy.take(replace(report(first), **wrong))
    with pytest.raises(PolicyDecisionNotFoundError, match="must be of a decision that waits"):
        policy.take(replace(report(first), decision_id="unknown"))
    assert (store.count(), policy.stats()["n_pending"]) == (0, 1)


def play(policy: ServedPolicy, n: int, best: str = "expansion") -> None:
    """Report ``n`` episodes of one step, worth 1 where the action is the best one."""
    for number in range(n):
        answer = policy.decide(question(of=number))
        policy.take(report(answer, float(answer.action == best)))


def test_it_learns_what_is_rewarded_and_each_update_is_a_version(
    policy: ServedPolicy, store: ExperienceStore
):
    at = PROMPT_ACTIONS.index("expansion")
    before = policy.decide(question(), deterministic=True).probabilities[at]
    for _ in range(8):
        play(policy, 64)
        seen = policy.update()
        assert seen is not None
        assert seen.first_ratio_error < 1e-5
        assert seen.n_steps == 64 * seen.version
    assert policy.decide(question(), deterministic=True).probabilities[at] > max(0.6, before)
    assert [(v.version, v.kind) for v in store.find(VERSIONS, "ORDER BY version")][:2] == [
        (0, "begun"),
        (1, "updated"),
    ]
    assert store.find(VERSIONS, "ORDER BY version")[-1].statistics["n_steps"] == 512
    assert policy.update() is None


def test_steps_of_an_older_version_are_kept_and_not_learned_from(
    policy: ServedPolicy, store: ExperienceStore
):
    late = policy.decide(question())
    play(policy, 8)
    assert policy.update() is not None
    assert policy.take(report(late)).status == "archived"
    assert store.count() == 9
    assert policy.stats()["n_ready"] == 0


def test_another_process_goes_on_where_one_ended(tmp_path: Path, store: ExperienceStore):
    with ServedPolicy(store, settings()) as policy:
        play(policy, 8)
        policy.update()
        play(policy, 5)
        expected = policy.decide(question(), deterministic=True)
    with ServedPolicy(store, settings()) as again:
        assert again.version == 1
        assert again.decide(question(), deterministic=True).probabilities == expected.probabilities
        assert again.stats()["n_ready"] == 5
        seen = again.update()
    assert seen is not None
    assert seen.n_steps == 13


def test_a_saved_policy_is_loaded_as_a_new_version(policy: ServedPolicy, store: ExperienceStore):
    saved = policy.decide(question(), deterministic=True)
    assert policy.save("first") == 0
    play(policy, 8)
    policy.update()
    assert policy.decide(question(), deterministic=True).probabilities != saved.probabilities
    assert policy.load("first") == 2
    loaded = policy.decide(question(), deterministic=True)
    assert loaded.probabilities == saved.probabilities
    assert [(v.kind, v.checkpoint) for v in store.find(VERSIONS, "ORDER BY version")][-1] == (
        "loaded",
        "first",
    )
    play(policy, 8)
    assert policy.update() is not None


def test_another_systems_checkpoint_is_refused_by_name(store: ExperienceStore, tmp_path: Path):
    with ServedPolicy(store, settings()) as policy:
        policy.save("ours")
        with pytest.raises(PolicyCheckpointError, match=r"saved/unknown\.safetensors is not"):
            policy.load("unknown")
        path = store.root / "policy" / "saved" / "ours.safetensors"
        path.write_bytes(path.read_bytes()[:-8])
        with pytest.raises(PolicyCheckpointError, match="damaged"):
            policy.load("ours")
        assert policy.version == 0
    with pytest.raises(PolicyCheckpointError, match="embedding must be `other`, but got `given`"):
        ServedPolicy(store, PolicySettings.of("other", DIM))
    with pytest.raises(PolicyCheckpointError, match="`input_dim` must be"):
        ServedPolicy(store, settings(DIM + 1))
    version = store.root / "policy" / "versions" / "000000000.safetensors"
    version.write_bytes(version.read_bytes()[:-1])
    with pytest.raises(PolicyCheckpointError, match="must be as it was written"):
        ServedPolicy(store, settings())


def test_collectors_report_at_once_and_each_step_counts_once(
    policy: ServedPolicy, store: ExperienceStore
):
    def collect() -> None:
        for number in range(20):
            answer = policy.decide(question(of=number))
            for _ in range(2):
                policy.take(report(answer))

    threads = [threading.Thread(target=collect) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert store.count() == 80
    assert policy.stats()["n_ready"] == 80
    assert policy.is_update_due


def test_postgres_keeps_what_a_file_keeps(tmp_path: Path):
    url = postgres_server().new_schema()
    with ExperienceStore(tmp_path / "store", url=url) as store:
        with ServedPolicy(store, settings()) as policy:
            play(policy, 8)
            seen = policy.update()
            answer = policy.decide(question("expansion"))
            statuses = [policy.take(report(answer)).status for _ in range(2)]
            assert statuses == ["stored", "duplicate"]
        stored = store.of_version(1)
        assert [it.decision.legal.tolist() for it in stored] == [
            episode(question("expansion")).legal().tolist()
        ]
        assert stored[0].decision.log_prob == answer.log_prob
        assert store.count() == 9
        with ServedPolicy(store, settings()) as again:
            assert (again.version, again.stats()["n_ready"]) == (1, 1)
        assert seen is not None
        assert store.find(VERSIONS, "ORDER BY version")[1].statistics["kl"] == seen.kl
