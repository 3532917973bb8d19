"""The runtime state: each reward counts once, in time, and survives whatever happens."""

import json
import signal
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from convergence_core.bandit.arms import Receipt
from convergence_core.bandit.drift import Alarm, DriftWatch
from convergence_core.bandit.features import text_features
from convergence_core.errors import ArmChangedError, RequestReusedError
from tasks.serving.answers import as_dict
from tasks.serving.offers import offer_of
from tasks.store.runtime.rows import LoggedDecision, NewDecision, Reward, StoredPolicy
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import alarms as found_alarms, mark_reported, unreported_alarms
from tasks.store.runtime.writes import log_decision, take_reward
from tests.store.postgres_server import postgres_server
from tests.support.children import start_child
from tests.support.rebuilt_counts import rebuilt


class Clock:
    """A clock that the test moves."""

    now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str | None:
    """Both homes of the state keep the same contract."""
    return None if request.param == "sqlite" else postgres_server().new_schema()


@pytest.fixture
def store(tmp_path: Path, clock: Clock, url: str | None) -> Iterator[RuntimeStore]:
    with RuntimeStore(tmp_path / "store", url=url, now_us=clock) as opened:
        opened.offer(
            "bot", "default", [offer_of({"t": n}, f"arm {n}") for n in range(2)], trust=0.5
        )
        yield opened


def group_id(store: RuntimeStore) -> int:
    group = store.group("bot", "default")
    assert group is not None
    return group.group_id


def decide(
    store: RuntimeStore,
    decision_id: str = "d1",
    *,
    arm: str = "arm 0",
    unit: str | None = None,
    key: str | None = None,
    user: str = "u",
    propensity: float = 0.5,
    context_json: str | None = None,
) -> LoggedDecision:
    now, group = store.now_us(), group_id(store)
    new = NewDecision(
        decision_id=decision_id, user_id=user, arm_id=arm, version=1, propensity=propensity,
        context_json=context_json, created_us=now, expires_us=now + 1_000, unit=unit,
        request_key=key,
    )  # fmt: skip
    with store.database.transaction() as connection:
        return log_decision(connection, group, new)


def reward(
    store: RuntimeStore, decision_id: str, value: float, system: str = "bot", **more: float
) -> tuple[Receipt, Alarm | None]:
    new = Reward(decision_id=decision_id, **more)  # type: ignore[arg-type]
    with store.database.transaction() as connection:
        return take_reward(connection, system, new, value, store.now_us())


def counts(store: RuntimeStore) -> dict[str, tuple[float, float]]:
    arms = store.arms(group_id(store))
    found = {arm.arm_id: (arm.alpha, arm.beta) for arm in arms}
    for arm_id, pair in rebuilt(store, group_id(store)).items():
        assert pair == pytest.approx(found[arm_id]), "base plus the fold of the rewards"
    return found


def statuses(store: RuntimeStore) -> list[str]:
    with store.database.reading() as connection:
        return [
            str(row[0])
            for row in connection.execute("SELECT status FROM rewards ORDER BY seq").fetchall()
        ]


def test_a_first_reward_in_time_teaches(store: RuntimeStore):
    decide(store)
    receipt, alarm = reward(store, "d1", 0.25)
    assert (receipt.status, receipt.learns, alarm) == ("ok", True, None)
    assert counts(store)["arm 0"] == (1.25, 1.75)
    assert counts(store)["arm 1"] == (1.0, 1.0)
    assert statuses(store) == ["ok"]


def test_a_reward_at_the_moment_of_expiry_is_late_and_one_before_is_not(
    store: RuntimeStore, clock: Clock
):
    decide(store, "d1")
    decide(store, "d2")
    clock.now += 999
    assert reward(store, "d1", 1.0)[0].status == "ok"
    clock.now += 1
    assert reward(store, "d2", 1.0)[0].status == "late"
    assert counts(store)["arm 0"] == (2.0, 1.0)
    assert statuses(store) == ["ok", "late"]
    assert reward(store, "d2", 1.0)[0].status == "duplicate", "late ones count as given"


def test_the_same_reward_again_is_a_duplicate_and_stores_nothing(store: RuntimeStore):
    decide(store)
    reward(store, "d1", 1.0)
    assert reward(store, "d1", 1.0)[0].status == "duplicate"
    assert counts(store)["arm 0"] == (2.0, 1.0)
    assert statuses(store) == ["ok"]


def test_another_reward_is_a_conflict_and_the_first_wins(store: RuntimeStore):
    decide(store)
    reward(store, "d1", 1.0)
    assert reward(store, "d1", 0.0)[0].status == "conflict"
    assert counts(store)["arm 0"] == (2.0, 1.0)
    assert statuses(store) == ["ok", "conflict"]


@pytest.mark.parametrize(("system", "decision"), [("bot", "nobody's"), ("other", "d1")])
def test_a_reward_of_nobodys_decision_is_kept_as_an_orphan(
    store: RuntimeStore, system: str, decision: str
):
    decide(store)
    assert reward(store, decision, 1.0, system)[0].status == "unknown"
    assert counts(store)["arm 0"] == (1.0, 1.0)
    assert statuses(store) == ["orphan"]
    assert reward(store, "d1", 1.0)[0].status == "ok", "an orphan takes nobody's place"


def test_a_unit_keeps_its_arm_until_the_arm_retires(store: RuntimeStore):
    first = decide(store, "d1", arm="arm 0", unit="user:u")
    again = decide(store, "d2", arm="arm 1", unit="user:u")
    assert (first.arm_id, again.arm_id) == ("arm 0", "arm 0")
    assert store.retire("bot", "default", "arm 0")
    assert not store.retire("bot", "default", "arm 0")
    moved = decide(store, "d3", arm="arm 1", unit="user:u")
    assert moved.arm_id == "arm 1"
    found = [store.decision(f"d{n}") for n in (1, 2, 3)]
    assert [d.is_fresh for d in found if d is not None] == [True, False, True]


def test_rewards_of_kept_arms_are_no_evidence(store: RuntimeStore):
    for n, unit in ((1, "user:u"), (2, "user:u"), (3, None)):
        decide(store, f"d{n}", unit=unit)
        reward(store, f"d{n}", 1.0)
    assert [(t.arm_id, t.n) for t in store.tallies(group_id(store))] == [("arm 0", 2)]
    assert counts(store)["arm 0"] == (4.0, 1.0), "the posterior learns from all"


def test_a_request_that_is_asked_again_is_answered_alike(store: RuntimeStore):
    first = decide(store, "d1", key="k")
    again = decide(store, "d2", arm="arm 1", key="k")
    assert as_dict(again, LoggedDecision) == as_dict(first, LoggedDecision)
    assert decide(store, "d3", arm="arm 1", key="other").decision_id == "d3"
    with pytest.raises(RequestReusedError, match="one request"):
        decide(store, "d4", key="k", user="another")
    assert store.decision("d2") is None
    assert store.decision("d4") is None


def test_a_request_asked_again_may_have_got_its_texts_vector_in_between(store: RuntimeStore):
    def asked(name: str, **context: object) -> LoggedDecision:
        text = {"text.length": 3.0, "n": 3} | context
        return decide(store, name, key="k", context_json=json.dumps(text))

    first = asked("d1")
    assert asked("d2", **{"text.#e5-small.0": 0.5}).decision_id == first.decision_id
    for other in ({"text.length": 4.0}, {"n": 4}):
        with pytest.raises(RequestReusedError, match="one request"):
            asked("d3", **other)


def test_a_key_stands_for_one_text_and_not_for_all_of_its_length(store: RuntimeStore):
    first, other = (
        json.dumps(text_features(text))
        for text in ("May I end this contract?", "Can I eat some pancakes?")
    )
    decide(store, "d1", key="k", context_json=first)
    assert decide(store, "d2", key="k", context_json=first).decision_id == "d1"
    with pytest.raises(RequestReusedError, match="one request"):
        decide(store, "d3", key="k", context_json=other)


def test_an_arm_never_changes_its_parameters(store: RuntimeStore):
    with pytest.raises(ArmChangedError, match=r"`arm 0` must keep its parameters"):
        store.offer(
            "bot", "default", [offer_of({}, "new"), offer_of({"t": 7}, "arm 0")], trust=0.5
        )
    assert [arm.arm_id for arm in store.arms(group_id(store))] == ["arm 0", "arm 1"]


def test_an_arm_that_comes_back_keeps_what_it_learned(store: RuntimeStore):
    decide(store)
    reward(store, "d1", 1.0)
    store.retire("bot", "default", "arm 0")
    store.offer(
        "bot", "default", [offer_of({"t": 0}, "arm 0"), offer_of({"t": 9}, "arm 9")], trust=0.5
    )
    arms = store.arms(group_id(store))
    assert [(a.arm_id, a.is_retired, a.n) for a in arms] == [
        ("arm 0", False, 1), ("arm 1", False, 0), ("arm 9", False, 0),
    ]  # fmt: skip
    counts(store)


def test_a_unit_that_keeps_its_arm_is_one_reward_of_the_watch(store: RuntimeStore):
    store.save_settings("bot", {"rewards_per_false_alarm": 1_000})
    for n in range(30):
        decide(store, f"d{n}", unit="one user")
        reward(store, f"d{n}", 1.0)
    with store.database.reading() as connection:
        row = connection.execute("SELECT watch_json FROM groups").fetchone()
    watch = DriftWatch.from_json(row[0])
    assert watch.arms[0].n == 1, "only the first was drawn"


def test_an_alarm_reopens_its_arm_and_raises_exploration(store: RuntimeStore):
    alarms = []
    store.save_settings("bot", {"rewards_per_false_alarm": 5_000})
    for n in range(400):
        decide(store, f"d{n}")
        _, alarm = reward(store, f"d{n}", 1.0 if n < 200 else 0.0)
        if alarm is not None:
            alarms.append(n)
            break
    assert alarms, "no alarm although the mean fell from 1 to 0"
    assert 200 <= alarms[0] < 260
    (stored,) = found_alarms(store, "bot")
    assert (stored.arm_id, stored.agent_type) == ("arm 0", "default")
    assert found_alarms(store, "another") == []
    assert unreported_alarms(store) == [stored]
    mark_reported(store, [stored])
    assert unreported_alarms(store) == []
    group = store.group("bot", "default")
    assert group is not None
    assert group.explore_until == group.n + 100
    alpha, beta = counts(store)["arm 0"]
    assert alpha + beta < 60, "what was before the change is forgotten"
    assert beta > alpha


def test_a_changed_rate_of_false_alarms_applies_to_the_watch_that_runs(store: RuntimeStore):
    for rate in (5_000.0, 300.0):
        store.save_settings("bot", {"rewards_per_false_alarm": rate})
        decide(store, f"d{rate}")
        reward(store, f"d{rate}", 1.0)
        ((watch,),) = store.fetch("SELECT watch_json FROM groups")
        assert json.loads(watch)["rewards_per_false_alarm"] == rate


def test_only_one_process_makes_a_version(store: RuntimeStore):
    def version(number: int, share: float) -> StoredPolicy:
        return StoredPolicy(
            version=number, mode="regret", n=0, arms=("arm 0", "arm 1"), shares=(share, 1 - share),
            design={"stakes": False},
        )  # fmt: skip

    assert store.save_policy(group_id(store), version(1, 0.3))
    assert not store.save_policy(group_id(store), version(1, 0.6))
    assert store.policy(group_id(store), 1).shares == (0.3, 0.7)
    with pytest.raises(KeyError, match="version 2"):
        store.policy(group_id(store), 2)


def acknowledged_by(outputs: list[str]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for output in outputs:
        for line in output.rpartition("\n")[0].splitlines():
            arm, reward, _ = line.split(" ")
            found[arm].append(float(reward))
    return found


def processes(
    path: Path, n_processes: int, n_pairs: int, *, kill_after: int | None = None, n_kills: int = 0
) -> None:
    """Run children, kill some, and hold what was acknowledged against the state.

    Args:
        path: the store.
        n_processes: children at once.
        n_pairs: requests of each.
        kill_after: kill the first after so many rewards that it has acknowledged.
        n_kills: kill so many more, one each second; another begins in its place.
    """
    with RuntimeStore(path) as store:
        store.offer("bot", "default", [offer_of({"t": n}, f"a{n}") for n in range(5)], trust=0.5)
    outputs: list[str] = []
    with ExitStack() as stack:
        started = 0

        def start() -> subprocess.Popen[str]:
            nonlocal started
            started += 1
            return stack.enter_context(
                start_child("tests.runtime.pairer", path, started - 1, n_pairs)
            )

        children = [start() for _ in range(n_processes)]
        readers = [Reader(child) for child in children]
        if kill_after is not None:
            readers[0].wait_for(kill_after)
            children[0].send_signal(signal.SIGKILL)
        for number in range(n_kills):
            threading.Event().wait(1.0)
            victim = children[number % n_processes]
            victim.send_signal(signal.SIGKILL)
            children[number % n_processes] = start()
            readers.append(Reader(children[number % n_processes]))
        outputs = [reader.output() for reader in readers]
    n_killed = n_kills + (kill_after is not None)
    told = acknowledged_by(outputs)
    with RuntimeStore(path) as store:
        group = store.group("bot", "default")
        assert group is not None
        arms = store.arms(group.group_id)
        counts = rebuilt(store, group.group_id)
        with store.database.reading() as connection:
            stored = {
                str(d)
                for (d,) in connection.execute(
                    "SELECT decision_id FROM rewards WHERE status = 'ok'"
                ).fetchall()
            }
            if (store.root / "runtime.sqlite").exists():
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    for arm in arms:
        assert (arm.alpha, arm.beta) == pytest.approx(counts[arm.arm_id], abs=1e-9)
    ids = {line.split(" ")[2] for out in outputs for line in out.rpartition("\n")[0].splitlines()}
    assert ids <= stored, "an acknowledged reward is gone"
    assert len(stored) - len(ids) <= n_killed, "never acknowledged: at most one per kill"
    assert len(stored) == group.n
    if not n_killed:
        for arm in arms:
            assert arm.alpha == pytest.approx(1.0 + sum(told[arm.arm_id]), abs=1e-9)


class Reader:
    """Reads what a child says, so that it never waits for its reader."""

    def __init__(self, child: "subprocess.Popen[str]") -> None:
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._child = child
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            with self._news:
                self._lines.append(line)
                self._news.notify_all()

    def wait_for(self, n_lines: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: len(self._lines) >= n_lines, timeout=120)

    def output(self) -> str:
        self._thread.join()
        self._child.wait()
        return "".join(self._lines)


@pytest.fixture
def shared(url: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process and its children share the state of either home."""
    if url is None:
        monkeypatch.delenv("CONVERGENCE_RUNTIME", raising=False)
    else:
        monkeypatch.setenv("CONVERGENCE_RUNTIME", url)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)
def test_processes_that_share_a_state_lose_no_reward_and_count_none_twice(tmp_path: Path):
    processes(tmp_path / "store", 3, 40)


@pytest.mark.usefixtures("shared")
@pytest.mark.slow
def test_a_killed_process_loses_no_acknowledged_reward(tmp_path: Path):
    processes(tmp_path / "store", 3, 60, kill_after=20)


@pytest.mark.slow
@pytest.mark.usefixtures("shared")
def test_eight_processes_killed_each_second_lose_no_reward_over_many_pairs(tmp_path: Path):
    """3,200 pairs, one in twenty rewarded twice, one in a hundred of nobody."""
    processes(tmp_path / "store", 8, 400, n_kills=4)
