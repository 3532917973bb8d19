"""Production comes home: each decision and reward once in the tables, evidence in the looks."""

import time
from pathlib import Path

import pytest

from tasks.serving.fold import fold_store
from tasks.serving.offers import offer_of
from tasks.serving.settings import RuntimeConfig
from tasks.store.runtime import export
from tasks.store.runtime.promotions import looks
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.bandits import Bandit
from tests.support.emitted import kept_events


class Clock:
    now = 1_780_000_000_000_000

    def __call__(self) -> int:
        return self.now


def serve(path: Path, n: int, clock: Clock | None = None) -> None:
    """Serve n requests and reward all but the last, the first of them twice."""
    with RuntimeStore(path, now_us=clock or Clock()) as store:
        store.offer("bot", "default", [offer_of({"m": a}, a) for a in ("x", "y")], trust=0.5)
        bandit = Bandit(store, "bot", seed=1)
        for number in range(n):
            chosen = bandit.select("u", context={"n": number})
            if number == n - 1:
                break
            bandit.update(chosen.decision_id, 0.5)
            if number == 0:
                bandit.update(chosen.decision_id, 0.5)
                bandit.update(chosen.decision_id, 0.9)
                bandit.update("nobody's", 1.0)


def test_decisions_and_rewards_are_exported_once(tmp_path: Path):
    path = tmp_path / "store"
    serve(path, 10)
    first = fold_store(path)
    assert (first.n_decisions, first.n_rewards) == (10, 11)
    again = fold_store(path)
    assert (again.n_decisions, again.n_rewards) == (0, 0)
    serve(path, 5)
    assert fold_store(path).n_decisions == 5
    store = ParquetStore(path)
    assert store.check() == {}
    decisions = store.rows("SELECT * FROM decisions ORDER BY seq")
    assert [row["seq"] for row in decisions] == list(range(1, 16))
    assert {row["system"] for row in decisions} == {"bot"}
    assert decisions[3]["context_json"] == '{"n":3}'
    statuses = store.rows("SELECT status, count(*) AS n FROM rewards GROUP BY ALL ORDER BY ALL")
    assert statuses == [
        {"status": "conflict", "n": 2}, {"status": "ok", "n": 13}, {"status": "orphan", "n": 2},
    ]  # fmt: skip
    rewarded = store.rows(
        "SELECT d.arm_id, count(*) AS n, avg(r.reward) AS mean FROM decisions d "
        "JOIN rewards r USING (decision_id) WHERE r.status = 'ok' GROUP BY ALL"
    )
    assert sum(int(str(row["n"])) for row in rewarded) == 13
    assert {row["mean"] for row in rewarded} == {0.5}


def test_a_fold_gives_the_missing_rewards_of_windows_that_have_passed(tmp_path: Path):
    path = tmp_path / "store"
    with RuntimeStore(path) as store:
        store.offer("bot", "default", [offer_of({}, "x"), offer_of({}, "y")], trust=0.5)
        settings = RuntimeConfig(system="bot", expires_after_s=0.05, missing_reward=0.0)
        store.save_settings("bot", settings.model_dump(mode="json"))
        bandit = Bandit(store, "bot")
        chosen = [bandit.select("u") for _ in range(4)]
        bandit.update(chosen[-1].decision_id, 1.0)
        time.sleep(0.1)
        assert fold_store(path).n_rewards == 4
        assert sum(arm.n for arm in store.arms(1)) == 4
    found = ParquetStore(path).rows(
        "SELECT reward FROM rewards WHERE status = 'ok' ORDER BY reward"
    )
    assert [row["reward"] for row in found] == [0.0, 0.0, 0.0, 1.0]


def test_a_fold_that_was_killed_goes_on_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "store"
    serve(path, 10)
    monkeypatch.setattr(export, "MOST_ROWS", 4)
    written = export._write

    def killed(*arguments: object) -> int:
        written(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(export, "_write", killed)
        with pytest.raises(KeyboardInterrupt):
            fold_store(path)
    assert fold_store(path).n_decisions == 10, "the range that was begun is written again"
    found = ParquetStore(path).rows("SELECT seq FROM decisions ORDER BY seq")
    assert [row["seq"] for row in found] == list(range(1, 11))
    assert len(list((path / "final/decisions").rglob("*.parquet"))) == 3


def test_every_fold_with_news_is_a_look(tmp_path: Path):
    path = tmp_path / "store"
    serve(path, 10)
    fold_store(path)
    fold_store(path)
    with RuntimeStore(path) as store:
        (look,) = looks(store, "bot")
    assert (look.kind, look.decision, look.n) == ("traffic", "undecided", 9)
    assert look.candidate_id in {"x", "y"}
    assert look.details["winner"] is None


@pytest.mark.prefect
def test_the_flow_folds_a_store(tmp_path: Path):
    from flows.fold import fold

    serve(tmp_path / "store", 4)
    report = fold(str(tmp_path / "store"))
    assert report.n_decisions == 4
    assert set(report.evidence) == {"bot/default"}


@pytest.mark.prefect
@pytest.mark.slow
def test_an_alarm_of_drift_becomes_one_event(tmp_path: Path):
    """Through Prefect's own client of events, whose messages are kept by its test double."""
    from flows.fold import fold

    with RuntimeStore(tmp_path / "store") as store:
        store.offer("bot", "default", [offer_of({}, "a")], trust=0.5)
        bandit = Bandit(store, "bot", seed=1)
        store.save_settings("bot", {"rewards_per_false_alarm": 2_000})
        for number in range(300):
            chosen = bandit.select("u")
            bandit.update(chosen.decision_id, 1.0 if number < 100 else 0.0)
    assert fold(str(tmp_path / "store")).alarms, "no event was asked for, and none is told"
    with kept_events() as emitted:
        (alarm,) = fold(str(tmp_path / "store"), drift_events=True).alarms
        assert fold(str(tmp_path / "store"), drift_events=True).alarms == ()
        (event,) = [event for event in emitted() if event.event == "convergence.drift"]
    assert event.resource["prefect.resource.id"] == "convergence.system.bot"
    assert event.payload["arm_id"] == alarm.arm_id == "a"
    assert event.payload["after"] < event.payload["before"]
