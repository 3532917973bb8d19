"""``runs`` and ``query``: reading a store."""

import contextlib
import csv
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import polars as pl
import pytest

from convergence_core.ports import RunRecord
from tasks.store import Lease, ParquetStore
from tests.support.catalogs import check_catalog
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


def test_runs_of_one_system_as_json(store: Path, cli: Runner):
    rows = cli("runs", "bot", "--json").json
    assert [(row["label"], row["seed"], row["status"]) for row in rows] == [
        ("bot-0001", 11, "stopped")
    ]


def test_a_killed_run_is_interrupted_and_the_command_to_go_on_is_printed(store: Path, cli: Runner):
    written = ParquetStore(store)
    written.save_run(record(3, status="running", reason=None, ended_us=None))
    offline = record(4, status="running", reason=None, tags={"offline": "true"})
    written.save_run(offline)
    written.close()
    Lease(store, "bot").acquire().release()
    rows = cli("runs", "--json").json
    assert [row["status"] for row in rows] == ["interrupted", "interrupted", "stopped", "stopped"]
    done = cli("runs", "--store", store)
    assert f"convergence resume bot-0003 --store {store}\n" in done.err
    assert f"convergence resume bot-0004 --offline --store {store}\n" in done.err
    told = cli("report", "bot-0003").err
    assert "is interrupted after 3 generations" in " ".join(told.split())


def test_a_query_and_the_catalog_show_a_killed_run_as_interrupted(store: Path, cli: Runner):
    written = ParquetStore(store)
    written.save_run(record(3, status="running", reason=None, ended_us=None))
    written.close()
    Lease(store, "bot").acquire().release()
    sql = "select status, reason from runs where label = 'bot-0003'"
    (row,) = cli("query", sql, "--json").json
    assert row["status"] == "interrupted"
    assert "`convergence resume bot-0003` goes on" in row["reason"]
    check_catalog(store)


def test_store_without_runs_says_so(store: Path, cli: Runner):
    done = cli("runs", "nobody")
    assert (done.code, done.out) == (0, "")
    assert "no runs of nobody" in done.err


def test_missing_store_is_bad_input_with_a_fix_and_is_not_made(here: Path, cli: Runner):
    for command in (["runs"], ["query", "select 1"], ["report"], ["resume"]):
        done = cli(*command)
        assert done.code == 2, command
        assert "convergence-data" in done.err
        assert "--store" in done.err
    assert list(here.iterdir()) == []


def test_store_is_found_by_option_configuration_and_default(store: Path, here: Path, cli: Runner):
    (here / "elsewhere").mkdir()
    store.rename(here / "elsewhere" / "data")
    (here / "elsewhere" / "c.yaml").write_text("storage: {path: data}\n")
    (here / "optimization.yaml").write_text("storage: {path: elsewhere/data}\n")
    for options in (
        ["--store", "elsewhere/data"],
        ["--config", "elsewhere/c.yaml"],
        [],
    ):
        assert len(cli("runs", "--json", *options).json) == 2


def test_configuration_that_is_no_yaml_is_reported_with_its_name(here: Path, cli: Runner):
    (here / "optimization.yaml").write_text("storage: [")
    done = cli("runs")
    assert done.code == 2
    assert "optimization.yaml" in done.err
    assert "Traceback" not in done.err


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


def in_terminal(columns: int, *arguments: str) -> str:
    """Run a command in a terminal of so many columns; return what it shows, without styles."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, "-m", "convergence", *arguments],
        stdout=its,
        stderr=subprocess.DEVNULL,
        env={**environment, "PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm"},
    ):
        os.close(its)
        shown = b""
        with contextlib.suppress(OSError):  # Linux's word for the end of a terminal
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())


def test_a_long_table_shows_its_first_rows_and_says_where_all_are(store: Path, cli: Runner):
    done = cli("query", "select range as n from range(1001)")
    assert re.findall(r"^ *(\d+) *$", done.out, re.MULTILINE) == [str(n) for n in range(1000)]
    assert "1,001 rows\nShown: the first 1,000; --format csv or json has all." in done.err
    assert len(cli("query", "select * from range(1001)", "--json").json) == 1001
    done = cli("query", "select * from range(1000)")
    assert "shown" not in done.err


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
@pytest.mark.slow
def test_ids_stay_whole_in_a_terminal_however_narrow(columns: int, store: Path):
    sql = (
        "select run_id, config_sha256, label, repeat('many words ', 30) as words, "
        "repeat('x', 200) as long from runs"
    )
    shown = in_terminal(columns, "query", sql)
    for word in (record(1).run_id, record(2).run_id, "bot-0001", "0" * 64):
        assert f" {word} " in f" {shown.replace(chr(10), ' ')}", word
    widest = max(len(line.rstrip()) for line in shown.splitlines())
    assert widest <= max(columns, 26 + 64 + 10 + 2 * 20 + 2 * 5), "texts are folded"


def test_a_table_that_fits_is_as_wide_as_its_terminal_at_most(store: Path):
    shown = in_terminal(70, "query", "select label, repeat('many words ', 30) as words from runs")
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 70


def test_values_json_lacks_become_null_and_texts(store: Path, cli: Runner):
    sql = "select 'nan'::double as a, null as b, date '2026-01-02' as c, 1.5::decimal(4,2) as d"
    assert cli("query", sql, "--json").json == [
        {"a": None, "b": None, "c": "2026-01-02", "d": 1.5}
    ]


@pytest.mark.parametrize(
    ("given", "value"), [("11", 11), ("1.5", 1.5), ("true", True), ("null", None), ("x=y", "x=y")]
)
def test_parameters_are_read_as_values(given: str, value: object, store: Path, cli: Runner):
    assert cli("query", "select $v as v", "-p", f"v={given}", "--json").json == [{"v": value}]


def test_parameter_never_becomes_sql(store: Path, cli: Runner):
    sql = "select count(*) as n from runs where label = $label"
    attack = "x' or '1'='1"
    assert cli("query", sql, "--param", f"label={attack}", "--json").json == [{"n": 0}]


def test_csv_on_the_terminal_runs_in_no_spreadsheet(store: Path, cli: Runner):
    sql = "select '=1+1' as text, -1.5 as number, 'a' || chr(13) || '=1' as lines"
    told = cli("query", sql, "--format", "csv").out
    assert told == 'text,number,lines\n\'=1+1,-1.5,"a\r=1"\n'


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


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["selec 1"], "syntax error"),
        (["select * from nothing"], "leaderboard"),
        (["delete from runs"], "SELECT"),
        (["select 1", "--format", "parquet"], "--output"),
        (["select 1", "--output", "x"], "--format"),
        (["select 1", "--param", "novalue"], "NAME=VALUE"),
    ],
)
def test_wrong_queries_are_bad_input(arguments: list[str], text: str, store: Path, cli: Runner):
    done = cli("query", *arguments)
    assert done.code == 2
    assert text in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("select nothing from runs", "LINE 1: select nothing from runs"),
        ("select *\nfrom runs\nwhere nothing", "LINE 3: where nothing"),
        ("selec", "LINE 1: selec"),
        ("\n" * 9 + "select nothing from runs", "LINE 10: select nothing from runs"),
    ],
)
def test_an_error_shows_the_line_as_it_was_written_and_marks_the_place(
    sql: str, line: str, store: Path, cli: Runner
):
    lines = cli("query", sql).err.splitlines()
    shown = [text for text in lines if text.startswith("LINE")]
    assert shown == [line]
    mark = lines[lines.index(line) + 1].index("^")
    wrong = next(word for word in ("nothing", "selec") if word in line)
    assert mark == line.index(wrong)


def test_query_is_read_from_standard_input(
    store: Path, cli: Runner, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", io.StringIO("select 7 as seven"))
    assert json.loads(cli("query", "-", "--json").out) == [{"seven": 7}]
