"""The runtime state in Postgres: its own manners beside the contract that both homes keep."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from convergence_core.errors import StoreError, StoreWriteError
from tasks.serving.fold import fold_store
from tasks.serving.offers import offer_of
from tasks.store.postgres import translated, translated_ddl
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.schema import RUNTIME
from tasks.store.tables.parquet_store import ParquetStore
from tests.runtime.test_runtime_store import reward
from tests.store.postgres_server import PASSWORD, postgres_server
from tests.support.bandits import Bandit


@pytest.fixture
def url() -> str:
    return postgres_server().new_schema()


def test_statements_are_translated_by_table_and_place():
    assert translated("SELECT a.x FROM arms a, my_arms WHERE arms_json = ?", RUNTIME.names) == (
        "SELECT a.x FROM convergence_arms a, my_arms WHERE arms_json = %s"
    )
    script = "".join(table.script for table in RUNTIME.tables)
    ddl = translated_ddl(script, RUNTIME.names)
    assert "INTEGER" not in ddl
    assert "WITHOUT ROWID" not in ddl
    assert ddl.count("CREATE TABLE convergence_") == script.count("CREATE TABLE")


def test_machines_share_what_the_variable_names(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
):
    assert not RuntimeStore.exists_in(tmp_path / "one")
    monkeypatch.setenv("CONVERGENCE_RUNTIME", url)
    assert RuntimeStore.exists_in(tmp_path / "one")
    with RuntimeStore(tmp_path / "one") as one, RuntimeStore(tmp_path / "two") as two:
        one.offer("bot", "default", [offer_of({}, "a"), offer_of({}, "b")], trust=0.5)
        chosen = Bandit(one, "bot", seed=1).select("u")
        assert Bandit(two, "bot", seed=2).update(chosen.decision_id, 0.5).status == "ok"
        assert Bandit(one, "bot", seed=3).update(chosen.decision_id, 0.5).status == "duplicate"
    assert not (tmp_path / "one" / "runtime.sqlite").exists()
    report = fold_store(tmp_path / "one")
    assert (report.n_decisions, report.n_rewards) == (1, 1)
    assert len(ParquetStore(tmp_path / "one").rows("SELECT * FROM decisions")) == 1


def test_two_first_rewards_at_once_are_one_and_its_duplicate(tmp_path: Path, url: str):
    with RuntimeStore(tmp_path / "s", url=url) as store:
        store.offer("bot", "default", [offer_of({}, "a")], trust=0.5)
        decisions = [Bandit(store, "bot", seed=1).select("u").decision_id for _ in range(20)]
        others = [RuntimeStore(tmp_path / "s", url=url) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            for decision_id in decisions:
                receipts = pool.map(lambda one, d=decision_id: reward(one, d, 1.0)[0], others)
                statuses = sorted(receipt.status for receipt in receipts)
                assert statuses == ["duplicate", "duplicate", "duplicate", "ok"]
        for one in others:
            one.close()
        group = store.group("bot", "default")
        assert group is not None
        assert group.n == 20


def test_a_request_asked_twice_at_once_is_one_decision(tmp_path: Path, url: str):
    stores = [RuntimeStore(tmp_path / "s", url=url) for _ in range(4)]
    stores[0].offer("bot", "default", [offer_of({}, n) for n in "ab"], trust=0.5)
    bandits = [Bandit(store, "bot", seed=n) for n, store in enumerate(stores)]
    with ThreadPoolExecutor(4) as pool:
        for key in range(10):
            found = pool.map(
                lambda one, k=key: one.select("u", request_key=str(k)).decision_id, bandits
            )
            assert len(set(found)) == 1
    for store in stores:
        store.close()


def test_a_connection_that_dropped_is_made_again(tmp_path: Path, url: str):
    with RuntimeStore(tmp_path / "s", url=url) as store:
        store.offer("bot", "default", [offer_of({}, "a")], trust=0.5)
        with psycopg.connect(postgres_server().url(), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE application_name = 'convergence'"
            )
        with pytest.raises(StoreWriteError, match="cannot use the runtime state"):
            store.systems()
        assert store.systems() == [("bot", "default")]


def test_no_message_tells_the_password(tmp_path: Path, url: str):
    wrong = url.replace("tester:", "nobody:")
    for bad in (wrong, "mysql://x:" + PASSWORD + "@y/z"):
        with pytest.raises(StoreError) as refused:
            RuntimeStore(tmp_path / "s", url=bad)
        assert PASSWORD not in str(refused.value)
        assert "CONVERGENCE_RUNTIME" in str(refused.value)
