"""Questions in SQL: what the views answer, and what a query cannot do."""

import csv
import io
import os
import shutil
import signal
import threading

import pytest

from convergence_core.errors import QueryError, StoreWriteError
from convergence_core.ports import Row
from tasks.report.evidence import counts_of
from tasks.store.tables.csv_cells import csv_writer
from tasks.store.tables.parquet_store import ParquetStore
from tasks.store.tables.tables import TABLES
from tasks.store.tables.views import VIEW_NAMES
from tests.support.store_rows import (
    RUN,
    ahead_tables,
    final_tables,
    generation_tables,
    preference_tables,
    run_record,
    thought_tables,
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A store that no test changes; building one takes a third of a second."""
    store = ParquetStore(tmp_path_factory.mktemp("built") / "it's a store")
    store.save_run(run_record())
    for generation in range(3):
        tables = generation_tables(generation=generation) | thought_tables(generation=generation)
        tables |= preference_tables(generation=generation)
        store.write_ahead(RUN, generation, ahead_tables(generation=generation))
        store.publish(RUN, generation, tables)
    store.publish(RUN, -1, final_tables())
    return store.path


@pytest.fixture
def store(built, tmp_path):
    return ParquetStore(shutil.copytree(built, tmp_path / built.name))


OF_PRODUCTION = {"decisions", "rewards"}
OF_PEOPLE = {"interactions", "ratings", "comparisons", "rated_answers", "answer_pairs"}
OF_POLICY = {"policy_experiences", "policy_versions"}
OF_ADAPTERS = {"adapter_events", "training_rounds", "gate_checks", "live_tests", "adapters"}
OF_GAMES = {
    *("game_rounds", "game_coins", "game_plays", "task_audits"),
}
EMPTY = {"failures"} | OF_PRODUCTION | OF_PEOPLE | OF_ADAPTERS | OF_POLICY | OF_GAMES
"""Views of which this store, made of runs without a failure, has no rows."""


def test_every_view_answers_on_an_empty_and_on_a_full_store(store, tmp_path):
    empty = ParquetStore(tmp_path / "empty")
    for name in VIEW_NAMES:
        sql = f"SELECT * FROM {name}"  # noqa: S608 - a name of the registry
        assert empty.rows(sql) == [], name
        result = store.query(sql)
        assert bool(result.rows) is (name not in EMPTY), name
        assert len(result.columns) == len(result.types) == len(set(result.columns)), name


def test_a_tables_columns_are_those_of_the_registry_with_or_without_files(store, tmp_path):
    empty = ParquetStore(tmp_path / "empty")
    for name, table in TABLES.items():
        expected = [(c.name, c.sql_type) for c in table.columns]
        for read in (store, empty):
            result = read.query(f"SELECT * FROM {name}")  # noqa: S608 - a name of the registry
            assert list(zip(result.columns, result.types, strict=True)) == expected, name


def test_the_leaderboard_averages_cases_and_takes_money_from_attempts(tmp_path):
    store = ParquetStore(tmp_path)
    tables = generation_tables(n=6)
    rows = [dict(row) for row in tables["evaluations"]]
    # Candidate 0000-1: case 0 twice (1, 0), case 1 missing, case 2 failed by its own fault.
    rows[1].update(reward=1.0)
    rows[3].update(reward=None, status="error", fault="infrastructure", error_type="http_503")
    rows[5].update(reward=0.0, status="error", fault="candidate", error_type="ValueError")
    rows.append({**rows[1], "eval_id": "again", "replicate": 1, "reward": 0.0})
    rows.append({**rows[1], "eval_id": "skipped", "status": "skipped", "reward": None})
    tables["evaluations"] = [*rows]
    store.publish(RUN, 0, tables)
    other, found = store.rows("SELECT * FROM leaderboard ORDER BY candidate_id")
    assert (found["raw_mean_reward"], found["n_cases"]) == (0.25, 2)
    assert (found["n_evaluations"], found["n_failed"], found["cost_usd"]) == (4, 2, 0.75)
    assert (other["raw_mean_reward"], other["n_cases"]) == (0.0, 3)
    assert store.rows("SELECT fault, count(*) AS n FROM failures GROUP BY ALL ORDER BY 1") == [
        {"fault": "candidate", "n": 1},
        {"fault": "infrastructure", "n": 1},
        {"fault": None, "n": 1},
    ]


def test_the_leaderboard_and_the_final_estimates_weigh_cases(tmp_path):
    store = ParquetStore(tmp_path)
    tables = generation_tables(n=6)
    rewards = {"case-0": 1.0, "case-1": 0.0, "case-2": None}
    weights = {"case-0": 3.0, "case-1": 1.0, "case-2": 100.0}
    rows = [
        {**row, "reward": rewards[str(row["case_id"])], "weight": weights[str(row["case_id"])]}
        for row in tables["evaluations"]
    ]
    tables["evaluations"] = [*rows]
    store.publish(RUN, 0, tables)
    final = [{**row, "generation": None, "role": "holdout"} for row in rows]
    store.publish(RUN, -1, {"evaluations": final, "attempts": []})
    for view, mean in (("leaderboard", "raw_mean_reward"), ("final_estimates", "mean_reward")):
        found = store.rows(f"SELECT {mean} AS mean, n_cases, n_evaluations FROM {view}")  # noqa: S608 - a test's SQL
        assert [row["mean"] for row in found] == [0.75, 0.75]
        assert (found[0]["n_cases"], found[0]["n_evaluations"]) == (2, 3)


def test_a_repeated_cell_has_its_last_outcome_on_every_surface(tmp_path):
    store, tables = ParquetStore(tmp_path), generation_tables(n=4)
    rows = [dict(row) for row in tables["evaluations"]]
    for i in (0, 2):  # the two cases of candidate 0000-0
        rows[i].update(reward=None, status="error", fault="evaluator", metrics={"quality": 0.25})
    store.publish(RUN, 0, {**tables, "evaluations": [*rows]})
    again = {"status": "ok", "fault": None, "reward": 1.0, "metrics": {"quality": 0.75}}
    kept_back = {"status": "skipped", "fault": None, "metrics": None}
    repeated = [
        {**rows[0], "generation": 1, "eval_id": "again", **again},
        {**rows[2], "generation": 1, "eval_id": "kept back", **kept_back},
    ]
    marker = generation_tables(generation=1)["generations"]
    store.publish(RUN, 1, {"evaluations": [*repeated], "attempts": [], "generations": marker})
    found = store.rows(
        "SELECT case_id, value FROM metrics WHERE metric = 'quality' AND candidate_id = '0000-0' ORDER BY 1"
    )
    assert [row["value"] for row in found] == [0.75, 0.25]
    counts = counts_of(store, RUN)
    assert (counts["n_evaluations"], counts["n_failed"], counts["n_skipped"]) == (4, 1, 0)
    (row,) = store.rows("SELECT * FROM leaderboard WHERE candidate_id = '0000-0'")
    assert (row["n_evaluations"], row["n_failed"], row["raw_mean_reward"]) == (2, 1, 1.0)


def estimates_of(generation: int, means: dict[str, float], *, end: bool = False) -> list[Row]:
    """Return posteriors after a generation, those of most mean first."""
    ranking = sorted(means, key=lambda name: -means[name])
    return [
        {
            "run_id": RUN,
            "generation": None if end else generation,
            "candidate_id": name,
            "role": "search",
            "n_generations": generation + 1,
            "rank": rank,
            "mean": means[name],
            "low": means[name] - 0.1,
            "high": means[name] + 0.1,
            "level": 0.95,
            "cautious": means[name] - 0.05,
            "n_cases": 3,
            "recommended": rank == 1,
        }
        for rank, name in enumerate(ranking, 1)
    ]


def test_rank_and_recommendation_are_those_of_the_newest_posterior(tmp_path):
    store = ParquetStore(tmp_path)
    believed = [{"0000-0": 0.3, "0000-1": 0.2}, {"0000-0": 0.4, "0000-1": 0.1, "0001-1": 0.35}]
    for generation, means in enumerate(believed):
        tables = generation_tables(generation=generation)
        tables["estimates"] = [*estimates_of(generation, means)]
        store.publish(RUN, generation, tables)
    rows = store.rows("SELECT * FROM leaderboard ORDER BY rank, candidate_id")
    assert [(row["candidate_id"], row["rank"], row["recommended"]) for row in rows] == [
        ("0000-0", 1, True),
        ("0001-1", 2, False),
        ("0000-1", 3, False),
        ("0001-0", None, False),  # it has no posterior
    ]
    # By raw means the order would be another one.
    (first,) = store.rows("SELECT arg_max(candidate_id, raw_mean_reward) AS raw FROM leaderboard")
    assert first["raw"] != "0000-0"
    first = rows[0]
    assert (first["posterior_mean"], first["cautious"]) == (0.4, pytest.approx(0.35))
    assert (first["posterior_low"], first["posterior_high"]) == (pytest.approx(0.3), 0.5)
    end = estimates_of(1, {"0000-1": 0.8, "0000-0": 0.4}, end=True)
    store.publish(RUN, -1, {"estimates": end})
    (best,) = store.rows("SELECT candidate_id FROM leaderboard WHERE recommended")
    assert best == {"candidate_id": "0000-1"}
    curve = store.rows(
        "SELECT recommended_id, best_so_far FROM learning_curve ORDER BY generation"
    )
    assert [tuple(row.values()) for row in curve] == [("0000-0", 0.3), ("0000-1", 0.8)]


def test_measured_means_bear_the_interval_that_the_run_wrote(tmp_path):
    store = ParquetStore(tmp_path)
    store.publish(RUN, 0, generation_tables())
    final = final_tables()
    final["estimates"] = [
        {
            "run_id": RUN,
            "generation": None,
            "candidate_id": "0000-0",
            "role": "holdout",
            "n_generations": 1,
            "mean": 0.0,
            "low": 0.0,
            "high": 0.4,
            "level": 0.9,
            "n_cases": 4,
            "recommended": True,
        }
    ]
    store.publish(RUN, -1, final)
    (row,) = store.rows("SELECT * EXCLUDE run_id FROM final_estimates")
    assert tuple(row.values()) == (True, "0000-0", "holdout", 0.0, 0.0, 0.4, 0.9, 4, 4, 0)


def test_costs_count_calls_hits_and_unknown_prices_apart(tmp_path):
    store = ParquetStore(tmp_path)
    tables = generation_tables(n=4)
    rows = [dict(row) for row in tables["attempts"]]
    rows[0].update(cost_usd=None)
    rows[1].update(state="cached", cost_usd=0.0)
    rows[2].update(state="failed", cost_usd=None, maybe_usd=0.5, error_type="lost")
    rows[3].update(
        tokens_in=30, cached_tokens=20, cache_write_tokens=5, tokens_out=4, reasoning_tokens=3
    )
    tables["attempts"] = [*rows]
    store.publish(RUN, 0, tables)
    (row,) = store.rows("SELECT * FROM costs")
    found = {name: row[name] for name in ("n_calls", "n_failed", "n_cached", "n_unpriced")}
    assert found == {"n_calls": 3, "n_failed": 1, "n_cached": 1, "n_unpriced": 1}
    tokens = ("tokens_in", "cached_tokens", "cache_write_tokens", "tokens_out", "reasoning_tokens")
    assert [row[name] for name in tokens] == [30, 20, 5, 4, 3]
    assert (row["cost_usd"], row["maybe_usd"], str(row["day"])) == (0.25, 0.5, "2025-10-09")
    tables["attempts"] = [
        *rows[:2],
        {**rows[2], "cost_usd": 0.0, "maybe_usd": 0.0, "eval_id": rows[0]["eval_id"]},
    ]
    other = ParquetStore(tmp_path / "unpriced")
    other.publish(RUN, 0, tables)
    (row,) = other.rows("SELECT cost_usd, n_unpriced FROM costs")
    assert row == {"cost_usd": None, "n_unpriced": 1}, "failures for nothing make no known price"
    of_evaluation = "(SELECT candidate_id FROM evaluations WHERE eval_id = $e)"
    leader = f"SELECT cost_usd FROM leaderboard WHERE candidate_id = {of_evaluation}"  # noqa: S608
    assert other.rows(leader, {"e": rows[0]["eval_id"]}) == [{"cost_usd": None}]


def test_a_text_sent_in_two_generations_is_joined_once(tmp_path):
    store = ParquetStore(tmp_path)
    for generation in range(2):
        tables = generation_tables(generation=generation, n=2)
        tables["payloads"] = [
            {"run_id": RUN, "payload_sha256": "same", "kind": "prompt", "text": "Say yes."}
        ]
        tables["evaluations"] = [
            {**row, "request_sha256": "same"} for row in tables["evaluations"]
        ]
        store.publish(RUN, generation, tables)
    assert store.rows("SELECT prompt, response, count(*) AS n FROM answers GROUP BY ALL") == [
        {"prompt": "Say yes.", "response": None, "n": 4}
    ]
    store.save_run(run_record())
    store.finish_run(run_record(status="done"))
    assert store.rows("SELECT text FROM payloads") == [{"text": "Say yes."}]


WRITES = [
    "COPY (SELECT 1) TO '{store}/live/evil.parquet'",
    "WITH x AS (COPY (SELECT 1 AS a) TO '{store}/live/evil.parquet') SELECT 1",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{store}/live/evil.parquet'",
    "EXPLAIN ANALYZE WITH x AS (COPY (SELECT 1) TO '{store}/live/evil.parquet') SELECT 1",
    "CREATE TABLE evil AS SELECT 1",
    "DROP VIEW runs",
    "ATTACH '{store}/evil.duckdb'",
    "INSTALL httpfs",
    "SET threads = 1",
    "PREPARE x AS SELECT 1",
    "SELECT 1) TO '{store}/live/evil.parquet'; --",
]


def test_columns_of_one_name_are_told_apart(store):
    (row,) = store.rows("SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a")
    assert row == {"a": 1, "a_2": 2, "a_1": 3, "a_3": 4}


def test_a_query_that_writes_is_refused(store, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    root = str(store.path).replace("'", "''")
    for sql in WRITES:
        with pytest.raises(QueryError):
            store.query(sql.replace("{store}", root))
        with pytest.raises(QueryError):
            store.export(sql.replace("{store}", root), tmp_path / "out.parquet")
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert {p: t for p, t in after.items() if p != tmp_path} == {
        p: t for p, t in before.items() if p != tmp_path
    }


OUTSIDE = [
    "SELECT * FROM read_text('/etc/hostname')",
    "SELECT * FROM '/etc/passwd.csv'",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM 'https://localhost/x.parquet'",
]
READS = [
    "FROM runs",
    "DESCRIBE runs",
    "SUMMARIZE evaluations",
    "SHOW TABLES",
    "EXPLAIN SELECT * FROM runs",
    "explain analyze FROM runs",
    "WITH a AS (SELECT 1 AS x) FROM a",
    "PIVOT evaluations ON status IN ('ok') USING count(*)",
    "VALUES (1)",
    "SELECT 1; -- done",
]


def test_a_query_reads_the_store_and_nothing_outside(store):
    for sql in READS:
        assert store.query(sql).rows, sql
    for sql in OUTSIDE:
        with pytest.raises(QueryError):
            store.query(sql)


def test_a_handle_sees_what_was_published_since(store):
    sql = "SELECT count(*) AS n FROM generations"
    assert store.rows(sql) == [{"n": 3}]
    store.publish(RUN, 3, generation_tables(generation=3))
    assert store.rows(sql) == [{"n": 4}]
    store.save_run(run_record(status="stopped"))
    assert store.rows("SELECT status FROM runs") == [{"status": "stopped"}]
    store.close()
    store.close()
    assert store.rows(sql) == [{"n": 4}]


def test_texts_of_a_cell_run_in_no_spreadsheet():
    risky = ["=1+1", "+1", "-1+1|cmd", "@SUM(A1)", "\tx", "\rx", "\nx", "  =x", "\u3000\uff1dx",
             "\u200b-x", "\ufeff@x"]  # fmt: skip
    harmless = ["a=b", "", "'=x", "1-2", "[-1]"]
    lines = io.StringIO()
    csv_writer(lines)([*risky, *harmless, -1.5, None])
    (row,) = csv.reader(io.StringIO(lines.getvalue(), newline=""))
    assert row == [*(f"'{text}" for text in risky), *harmless, "-1.5", ""]


def test_an_export_is_its_owners_and_replaces_no_pipe(store, tmp_path):
    store.export("SELECT 1 AS n", tmp_path / "out.parquet")
    assert (tmp_path / "out.parquet").stat().st_mode & 0o777 == 0o600
    os.mkfifo(tmp_path / "out")
    with pytest.raises(StoreWriteError, match="not a regular file"):
        store.export("SELECT 1 AS n", tmp_path / "out")
    assert (tmp_path / "out").is_fifo()


def test_a_signal_during_a_query_reaches_the_caller_as_what_its_handler_raised(built):
    # DuckDB alone turns it into `RuntimeError: Query interrupted`: a cancelled run counted as failed.
    class Terminated(BaseException):
        """As Prefect's ``TerminationSignal``."""

    def terminate(number: int, frame: object) -> None:
        raise Terminated

    slow = (
        "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE hash(a.range * b.range) = 3"
    )
    before = signal.signal(signal.SIGUSR1, terminate)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        store = ParquetStore(built)
        timer.start()
        with pytest.raises(Terminated):
            store.query(slow)
        assert store.rows("SELECT count(*) AS n FROM runs") == [{"n": 1}], (
            "the store can be queried again"
        )
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR1, before)
