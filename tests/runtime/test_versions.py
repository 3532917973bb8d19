"""Versions of a policy that processes share: one makes the next, and no decision is by an outdated one."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.serving.bandit import ArmRequest, ArmSelection
from tasks.serving.committer import Committer
from tasks.serving.offers import offer_of
from tasks.serving.operations import performed
from tasks.store.runtime.rows import StoredPolicy
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.support.bandits import Bandit

ARMS = [offer_of({"model": name}, name) for name in ("a", "b", "c")]


class Raced(RuntimeStore):
    """A store on which another process is just a moment faster, when the test says so."""

    before: Callable[[], object] | None = None

    def save_policy(self, group_id: int, policy: StoredPolicy) -> bool:
        before, self.before = self.before, None
        if before is not None:
            before()
        return super().save_policy(group_id, policy)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with RuntimeStore(tmp_path / "s") as store:
        store.offer("bot", "default", ARMS, trust=0.5)
    return tmp_path / "s"


def selection(bandit: Bandit) -> ArmSelection:
    return ArmSelection(lambda: bandit, ArmRequest(user_id="u"))


def n_versions(store: RuntimeStore) -> int:
    return len(store.policies(1))


def n_decisions(store: RuntimeStore) -> int:
    with store.database.reading() as connection:
        return int(connection.execute("SELECT count(*) FROM decisions").fetchone()[0])


def test_who_loses_the_race_for_a_version_leaves_the_next_to_the_winner(root: Path):
    with Raced(root) as store, RuntimeStore(root) as other:
        loser, winner = Bandit(store, "bot", seed=1), Bandit(other, "bot", seed=2)
        chosen = winner.select("u")
        assert n_versions(store) == 1
        winner.update(chosen.decision_id, 1.0)
        store.before = lambda: winner.select("u")
        assert loser.select("u").policy_version == 2, "that of the winner"
        winner.update(winner.select("u").decision_id, 1.0)
        assert loser.select("u").policy_version == 2, (
            "stale, but the winner is about to replace it"
        )
        assert winner.select("u").policy_version == 3
        assert n_versions(store) == 3


def test_a_winner_that_stops_is_not_waited_for(root: Path):
    with Raced(root) as store, RuntimeStore(root) as other:
        loser, winner = Bandit(store, "bot", seed=1), Bandit(other, "bot", seed=2)
        winner.update(winner.select("u").decision_id, 1.0)
        store.before = lambda: winner.select("u")
        assert loser.select("u").policy_version == 2
        for version in (2, 3):  # after the second reward it is twice as stale as it may be
            chosen = loser.select("u")
            assert chosen.policy_version == 2
            loser.update(chosen.decision_id, 1.0)
            assert loser.select("u").policy_version == version
        loser.update(loser.select("u").decision_id, 1.0)
        assert loser.select("u").policy_version == 4, "now it is the one that makes them"


def test_no_decision_names_an_arm_that_was_retired_before_it_was_logged(root: Path):
    with RuntimeStore(root) as store, RuntimeStore(root) as other:
        bandit = Bandit(store, "bot", seed=1)
        bandit.select("u")
        choices = [selection(bandit) for _ in range(10)]
        for one in choices:
            one.prepare()
        for name in ("a", "b"):
            other.retire("bot", "default", name)
        with store.database.transaction() as connection:
            for one in choices:
                one.write(connection)
        assert all(one.is_outdated for one in choices)
        assert n_decisions(store) == 1, "that before the arms were retired"
        assert {performed(store, one).arm_id for one in choices} == {"c"}
        assert n_decisions(store) == 11


def test_a_choice_is_made_again_when_the_rewards_have_grown(root: Path):
    with RuntimeStore(root) as store, RuntimeStore(root) as other:
        bandit, another = Bandit(store, "bot", seed=1), Bandit(other, "bot", seed=2)
        earlier = bandit.select("u")
        choice = selection(bandit)
        choice.prepare()
        another.update(earlier.decision_id, 1.0)
        with store.database.transaction() as connection:
            choice.write(connection)
        assert choice.is_outdated
        chosen = performed(store, choice)
        assert (earlier.policy_version, chosen.policy_version) == (1, 2)
        policy = store.policy(1, 2)
        assert chosen.propensity == policy.shares[policy.arms.index(chosen.arm_id)]


def test_a_choice_made_again_is_by_the_same_random_number(root: Path, tmp_path: Path):
    with RuntimeStore(tmp_path / "other") as other:
        other.offer("bot", "default", ARMS, trust=0.5)
        plain = Bandit(other, "bot", seed=4)
        expected = [plain.select("u").arm_id for _ in range(20)]
    with RuntimeStore(root) as store:
        bandit, found = Bandit(store, "bot", seed=4), []
        for _ in range(20):
            choice = selection(bandit)
            choice.prepare()  # and once more when it is performed
            found.append(performed(store, choice).arm_id)
    assert found == expected


def test_choices_that_share_a_commit_are_made_again_together(root: Path):
    with RuntimeStore(root) as store, RuntimeStore(root) as other:
        bandit = Bandit(store, "bot", seed=1)
        bandit.select("u")
        for name in ("a", "b"):
            other.retire("bot", "default", name)

        async def chosen() -> set[str]:
            committer = Committer(store)
            choices = [committer.perform(selection(bandit)) for _ in range(20)]
            found = await asyncio.gather(*choices)
            committer.close()
            return {one.arm_id for one in found}

        assert asyncio.run(chosen()) == {"c"}
        assert n_decisions(store) == 21
