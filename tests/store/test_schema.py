"""Every table round-trips, and files of older and newer schemas are read together."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tasks.store.tables.columns import Column, Table
from tasks.store.tables.damage import digest_in
from tasks.store.tables.parquet_files import ParquetFiles
from tasks.store.tables.tables import TABLES

TEXT = st.text(max_size=20)  # Hypothesis draws no lone surrogates
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": TEXT,
    "i32": st.integers(-(2**31), 2**31 - 1),
    "i64": st.integers(-(2**63), 2**63 - 1),
    "f64": st.floats(),
    "bool": st.booleans(),
    "ts": st.integers(-(2**50), 2**52),
    "map": st.dictionaries(TEXT, st.none() | st.floats(), max_size=3),
    "text[]": st.lists(st.none() | TEXT, max_size=3),
}


def rows_of(table: Table) -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries(
        {}, optional={c.name: st.none() | VALUES[c.type] for c in table.columns}
    )
    return st.lists(row, max_size=4)


ALL_TYPES = Table(
    "things",
    "A column of each type.",
    ("text",),
    tuple(Column(n, f"c{n}", kind, "") for n, kind in enumerate(VALUES, 1)),  # type: ignore[arg-type]
)


@pytest.mark.parametrize("table", [ALL_TYPES, TABLES["evaluations"]], ids=["types", "evaluations"])
def test_rows_round_trip_through_duckdb_and_polars(table, tmp_path):
    files = ParquetFiles()
    path = tmp_path / "rows.parquet"

    @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
    @given(rows=rows_of(table))
    def check(rows):
        files.write(table, rows, path)
        expected = [{c.name: row.get(c.name) for c in table.columns} for row in rows]
        assert repr(files.read(table, [str(path)])) == repr(expected)
        frame = polars.read_parquet(path)
        assert frame.columns == [c.name for c in table.columns]
        for column in table.columns:
            if column.type in ("text", "i32", "i64", "bool"):
                assert frame[column.name].to_list() == [row[column.name] for row in expected]

    check()
    files.close()


def test_columns_are_those_that_stores_hold():
    """Readers find a column by its field id, so an id once written means the same for good."""
    stored = Path(__file__).with_name("columns.txt").read_text(encoding="utf-8").splitlines()
    now = []
    for name, table in TABLES.items():
        now.append(f"{name} by {', '.join(table.key)}")
        columns = sorted(table.columns, key=lambda column: column.field_id)
        now += [f"{name} {column.field_id} {column.name} {column.type}" for column in columns]
    assert now == stored, (
        "a new column gets a line, a renamed one keeps its id; no id is used again"
    )


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_files_carry_field_ids_table_and_schema_version(table, tmp_path):
    path = tmp_path / "rows.parquet"
    ParquetFiles().write(table, [], path)
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT name, field_id FROM parquet_schema($file) WHERE field_id IS NOT NULL",
            {"file": str(path)},
        ).fetchall()
        metadata = connection.execute(
            "SELECT decode(key), decode(value) FROM parquet_kv_metadata($file)",
            {"file": str(path)},
        ).fetchall()
    top = {name: field_id for name, field_id in found if field_id < 1_000}
    assert top == {column.name: column.field_id for column in table.columns}
    assert len({field_id for _, field_id in found}) == len(found)
    assert dict(metadata) == {
        "convergence_table": table.name,
        "convergence_schema_version": "6",
        "convergence_sha256": digest_in(path),
    }


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_ids_and_names_are_unique_and_keys_exist(table):
    assert len({column.field_id for column in table.columns}) == len(table.columns)
    assert len({column.name for column in table.columns}) == len(table.columns)
    assert {table.column(name).name for name in table.key} == set(table.key)
    with pytest.raises(KeyError, match="nothing"):
        table.column("nothing")


OLD = Table(
    "things",
    "Of an earlier version.",
    ("a",),
    (Column(1, "a", "text", ""), Column(2, "n", "i32", ""), Column(3, "old_name", "f64", ""),
     Column(5, "gone", "text", "")),
)  # fmt: skip
NEW = replace(
    OLD,
    columns=(
        Column(3, "new_name", "f64", "renamed"),
        Column(1, "a", "text", "moved"),
        Column(2, "n", "i64", "widened"),
        Column(4, "m", "map", "added"),
    ),
)


def test_added_renamed_moved_widened_and_removed_columns_are_read_in_one_query(tmp_path):
    files = ParquetFiles()
    files.write(OLD, [{"a": "x", "n": 1, "old_name": 0.5, "gone": "z"}], tmp_path / "old.parquet")
    new = {"a": "y", "n": 2**40, "new_name": 1.5, "m": {"k": 1.0}}
    files.write(NEW, [new], tmp_path / "new.parquet")
    both = [str(tmp_path / "old.parquet"), str(tmp_path / "new.parquet")]
    assert files.read(NEW, both) == [{"new_name": 0.5, "a": "x", "n": 1, "m": None}, new]
    files.merge(NEW, both, tmp_path / "merged.parquet")
    assert files.read(NEW, [str(tmp_path / "merged.parquet")]) == files.read(NEW, both)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("run_id", 7),
        ("reward", "high"),
        ("replicate", 1.5),
        ("replicate", 2**31),
        ("tokens_in", -(2**63) - 1),
        ("cached", 1),
        ("metrics", [1.0]),
        ("metrics", {"a": "b"}),
        ("metrics", {1: 1.0}),
    ],
)
def test_values_of_other_types_are_refused_by_name(tmp_path, column, value):
    path = tmp_path / "rows.parquet"
    with pytest.raises(ValueError, match=f"column {column} "):
        ParquetFiles().write(TABLES["evaluations"], [{column: value}], path)
    assert list(tmp_path.iterdir()) == []


def test_a_column_that_the_table_lacks_is_refused_by_name(tmp_path):
    with pytest.raises(
        ValueError, match=r"evaluations has no column 'colour'\. Its columns are run_id,"
    ):
        ParquetFiles().write(TABLES["evaluations"], [{"colour": "red"}], tmp_path / "rows.parquet")
