"""What a store of results promises: generations whole or not at all, and read back as written."""

import pytest

from convergence_core.errors import QueryError, RunNotFoundError
from convergence_core.ports import Checkpoint
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.store_rows import RUN, T0, final_tables, generation_tables, run_record

OTHER = "01J8ZD0000000000000000WXYZ"


@pytest.fixture
def reopen(tmp_path):
    """Open the same store again, as another process would."""
    return lambda: ParquetStore(tmp_path / "store")


@pytest.fixture
def store(reopen):
    return reopen()


def count(store: ParquetStore, table: str, where: str = "true") -> object:
    return store.rows(f"SELECT count(*) AS n FROM {table} WHERE {where}")[0]["n"]  # noqa: S608 - a test's SQL


def everything(store: ParquetStore) -> dict[str, list[dict[str, object]]]:
    tables = ("generations", "candidates", "evaluations", "attempts", "payloads")
    return {t: store.rows(f"SELECT * FROM {t} ORDER BY ALL") for t in tables}  # noqa: S608 - a test's SQL


def test_an_empty_store_answers_with_nothing(store):
    assert store.runs() == []
    assert store.checkpoint(RUN) is None
    assert count(store, "evaluations") == 0
    assert store.rows("SELECT * FROM leaderboard") == []


def test_a_published_generation_is_read_back(store, reopen):
    store.save_run(run_record())
    store.publish(RUN, 0, generation_tables())
    rows = reopen().rows("SELECT * FROM evaluations ORDER BY eval_id")
    assert [row["eval_id"] for row in rows] == [f"0000-{i:04d}" for i in range(6)]
    assert rows[1]["metrics"] == {"latency_ms": 1.0, "quality": 0.5}
    assert rows[1]["fault"] is None
    assert rows[1]["started_at"].timestamp() * 1e6 == T0 + 1


def test_publishing_again_is_harmless(store):
    for _ in range(2):
        store.publish(RUN, 0, generation_tables())
    assert count(store, "evaluations") == 6
    assert count(store, "generations") == 1


def test_the_first_publication_of_a_generation_stands(store):
    store.publish(RUN, 0, generation_tables(n=6))
    store.publish(RUN, 0, generation_tables(n=2))
    assert count(store, "evaluations") == 6


@pytest.mark.parametrize("table", ["evaluations", "generations"])
def test_rows_of_another_run_are_refused(store, table):
    tables = generation_tables()
    tables[table] = [{**tables[table][0], "run_id": OTHER}]
    with pytest.raises(ValueError, match=OTHER):
        store.publish(RUN, 0, tables)


def test_rows_of_another_generation_are_refused(store):
    with pytest.raises(ValueError, match="generation 1"):
        store.publish(RUN, 0, generation_tables(generation=1))


def test_a_generation_without_its_row_is_refused(store):
    tables = generation_tables()
    del tables["generations"]
    with pytest.raises(ValueError, match="one row in generations"):
        store.publish(RUN, 0, tables)


def test_unknown_tables_and_columns_are_refused(store):
    with pytest.raises(ValueError, match="moods"):
        store.publish(RUN, 0, {**generation_tables(), "moods": []})
    tables = generation_tables()
    tables["candidates"] = [{**tables["candidates"][0], "colour": "red"}]
    with pytest.raises(ValueError, match="colour"):
        store.publish(RUN, 0, tables)
    assert count(store, "generations") == 0


@pytest.mark.parametrize("run_id", ["", "..", "a/b", "a b", "run*"])
def test_run_ids_that_are_no_file_names_are_refused(store, run_id):
    with pytest.raises(ValueError, match="run id"):
        store.publish(run_id, 0, generation_tables(run_id))


def test_the_checkpoint_is_that_of_the_last_generation(store, reopen):
    for generation in range(3):
        store.publish(RUN, generation, generation_tables(generation=generation))
    expected = Checkpoint(
        generation=2,
        rng_state_json='{"state":2}',
        sampler_state_json="{}",
        progress_json="{}",
    )
    assert reopen().checkpoint(RUN) == expected
    store.publish(RUN, -1, final_tables())
    assert reopen().checkpoint(RUN) == expected


def test_final_rows_have_no_generation_and_stay_out_of_the_leaderboard(store):
    store.publish(RUN, 0, generation_tables())
    before = store.rows("SELECT * FROM leaderboard ORDER BY rank")
    store.publish(RUN, -1, final_tables())
    assert store.rows("SELECT * FROM leaderboard ORDER BY rank") == before
    assert count(store, "evaluations", "generation IS NULL") == 4
    assert store.rows("SELECT role, n_cases FROM final_estimates") == [
        {"role": "holdout", "n_cases": 4}
    ]


def test_a_run_record_round_trips(store, reopen):
    full = run_record(
        status="stopped",
        ended_us=T0 + 5,
        reason="Ctrl-C",
        config_path="optimization.yaml",
        tags={"python": "3.11", "ü": '"'},
        n_generations=3,
        summary_json='{"a":1}',
    )
    store.save_run(run_record())
    assert reopen().runs() == [run_record()]
    store.save_run(full)
    assert reopen().run(RUN) == full


def test_runs_come_latest_first_and_by_system(store):
    store.save_run(run_record())
    store.save_run(run_record(OTHER, name="other", started_us=T0 + 1))
    assert [r.run_id for r in store.runs()] == [OTHER, RUN]
    assert [r.run_id for r in store.runs("bot")] == [RUN]
    assert store.runs("nobody") == []


@pytest.mark.parametrize("name", [RUN, "bot-abcd", "ABCD", "abcd", RUN[5:]])
def test_a_run_is_found_by_id_label_or_part(store, name):
    store.save_run(run_record())
    store.save_run(run_record(OTHER))
    assert store.run(name).run_id == RUN


def test_an_unknown_run_is_named_with_the_latest_ones(store):
    store.save_run(run_record())
    with pytest.raises(RunNotFoundError, match=r"'nope'.*bot-abcd"):
        store.run("nope")
    with pytest.raises(RunNotFoundError):
        store.run("")


def test_an_ambiguous_part_lists_the_candidates(store):
    store.save_run(run_record())
    store.save_run(run_record(OTHER))
    with pytest.raises(RunNotFoundError, match="2 runs"):
        store.run("01J8Z")


def test_finishing_keeps_every_row(store, reopen):
    store.save_run(run_record())
    for generation in range(3):
        store.publish(RUN, generation, generation_tables(generation=generation))
    store.publish(RUN, -1, final_tables())
    before = everything(store)
    done = run_record(status="done", ended_us=T0 + 9, n_generations=3)
    for _ in range(2):
        store.finish_run(done)
    after = reopen()
    assert everything(after) == before
    assert after.runs() == [done]
    assert after.checkpoint(RUN).generation == 2


def test_a_finished_run_cannot_change(store):
    store.save_run(run_record())
    store.publish(RUN, 0, generation_tables())
    store.finish_run(run_record(status="done"))
    with pytest.raises(ValueError, match="finished"):
        store.save_run(run_record())
    store.publish(RUN, 1, generation_tables(generation=1))
    assert count(store, "generations") == 1


def test_stopped_runs_stay_visible_and_can_go_on(store, reopen):
    store.save_run(run_record())
    store.publish(RUN, 0, generation_tables())
    store.save_run(run_record(status="stopped", ended_us=T0 + 1))
    again = reopen()
    again.save_run(run_record())
    again.publish(RUN, 1, generation_tables(generation=1))
    assert count(again, "generations") == 2


@pytest.mark.parametrize(
    "sql",
    ["SELEC 1", "SELECT * FROM nowhere", "SELECT nothing FROM runs", "", "SELECT 1; SELECT 2"],
)
def test_wrong_sql_is_a_query_error(store, sql):
    with pytest.raises(QueryError):
        store.rows(sql)
