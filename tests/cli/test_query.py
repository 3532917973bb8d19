"""``runs`` and ``query``: reading a store."""

import csv
import io
import json
import re
from pathlib import Path

import polars as pl
import pytest

from convergence_core.ports import RunRecord
from tasks.store.journal.lease import Lease
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.commands import Runner

EVENING = 1_770_000_000_000_000


def record(number: int, **changes: object) -> RunRecord:
    fields: dict[str, object] = {
        "run_id": f"01KAAAAAAAAAAAAAAAAAAAA{number:03d}", "name": "bot", "label": f"bot-{number:04x}",
        "status": "stopped", "started_us": EVENING + number, "ended_us": EVENING + number + 1,
        "reason": "Ctrl-C", "config_json": "{}", "config_sha256": "0" * 64, "base_dir": "/",
        "search_space_json": "{}", "cases_sha256": "0" * 64, "seed": 10 + number,
        "code_version": "1", "n_generations": number,
    }  # fmt: skip
    return RunRecord(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def store(here: Path) -> Path:
    """A store of two runs, in the default place."""
    path = here / "convergence-data"
    written = ParquetStore(path)
    written.save_run(record(1))
    written.save_run(record(2, name="other", label="other-0002"))
    written.close()
    return path


def test_runs_are_listed_latest_first(store: Path, cli: Runner):
    done = cli("runs")
    assert done.code == 0, done.err
    assert done.out.index("other-0002") < done.out.index("bot-0001")
    assert "2026-02-02 02:40" in done.out


def test_a_killed_run_is_interrupted_and_the_command_to_go_on_is_printed(store: Path, cli: Runner):
    written = ParquetStore(store)
    written.save_run(record(3, status="running", reason=None, ended_us=None))
    offline = record(4, status="running", reason=None, tags={"offline": "true"})
    written.save_run(offline)
    written.close()
    Lease(store, "bot").acquire().close()
    rows = cli("runs", "--json").json
    assert [row["status"] for row in rows] == ["interrupted", "interrupted", "stopped", "stopped"]
    done = cli("runs", "--store", store)
    assert f"convergence resume bot-0003 --store {store}\n" in done.err
    assert f"convergence resume bot-0004 --offline --store {store}\n" in done.err
    told = cli("report", "bot-0003").err
    assert "is interrupted after 3 generations" in " ".join(told.split())


def test_a_query_shows_a_killed_run_as_interrupted(store: Path, cli: Runner):
    written = ParquetStore(store)
    written.save_run(record(3, status="running", reason=None, ended_us=None))
    written.close()
    Lease(store, "bot").acquire().close()
    sql = "select status, reason from runs where label = 'bot-0003'"
    (row,) = cli("query", sql, "--json").json
    assert row["status"] == "interrupted"
    assert "`convergence resume bot-0003` continues" in row["reason"]


def test_missing_store_is_bad_input_with_a_fix_and_is_not_made(here: Path, cli: Runner):
    for command in (["runs"], ["query", "select 1"], ["report"], ["resume"]):
        done = cli(*command)
        assert done.code == 2, command
        assert "convergence-data" in done.err
        assert "--store" in done.err
    assert list(here.iterdir()) == []


def test_query_as_table_json_and_csv(store: Path, cli: Runner):
    sql = "select label, seed, reason, [1, 2] as l from runs order by label"
    table = cli("query", sql)
    assert "bot-0001" in table.out
    assert "2 rows" in table.err
    assert cli("query", sql, "--json").json[0] == {
        "label": "bot-0001", "seed": 11, "reason": "Ctrl-C", "l": [1, 2],
    }  # fmt: skip
    rows = list(csv.reader(io.StringIO(cli("query", sql, "--format", "csv").out)))
    assert rows[:2] == [["label", "seed", "reason", "l"], ["bot-0001", "11", "Ctrl-C", "[1, 2]"]]


def test_a_long_table_shows_its_first_rows_and_says_where_all_are(store: Path, cli: Runner):
    done = cli("query", "select range as n from range(1001)")
    assert re.findall(r"^ *(\d+) *$", done.out, re.MULTILINE) == [str(n) for n in range(1000)]
    assert "1,001 rows\nShown: the first 1,000; --format csv or json has all." in done.err
    assert len(cli("query", "select * from range(1001)", "--json").json) == 1001
    done = cli("query", "select * from range(1000)")
    assert "shown" not in done.err


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_output_is_written_to_a_file(form: str, store: Path, here: Path, cli: Runner):
    sql = "select label, seed from runs where seed > $n order by seed"
    done = cli("query", sql, "--format", form, "--output", f"out.{form}", "-p", "n=11")
    assert (done.code, done.out) == (0, ""), done.err
    path = here / f"out.{form}"
    assert path.stat().st_mode & 0o777 == 0o600
    if form == "json":
        rows = json.loads(path.read_text())
    else:
        frame = pl.read_csv(path) if form == "csv" else pl.read_parquet(path)
        rows = frame.to_dicts()
    assert rows == [{"label": "other-0002", "seed": 12}]
