"""The model of docs/scale.md: its table is the one that the script prints, and it adds up."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.scale import Night, predict, show_table

DOCS = Path(__file__).parents[2] / "docs"


def test_the_table_in_the_documents_is_the_one_that_is_printed(
    capsys: pytest.CaptureFixture[str],
):
    show_table()
    assert capsys.readouterr().out in (DOCS / "scale.md").read_text(encoding="utf-8")


def test_twice_the_systems_take_twice_the_work_and_as_long_if_twice_run_at_once():
    one = predict(Night(systems=10, runs_at_once=2))
    two = predict(Night(systems=20, runs_at_once=4))
    assert two.wall_s == pytest.approx(one.wall_s)
    assert two.client_cpu_s == pytest.approx(2 * one.client_cpu_s)
    assert two.server_cpu_s == pytest.approx(2 * one.server_cpu_s)
    assert two.bytes_ == pytest.approx(2 * one.bytes_)


def test_slower_calls_take_no_more_work():
    quick = Night(call_s=0.3)
    slow = replace(quick, call_s=3.0)
    assert predict(slow).client_cpu_s == predict(quick).client_cpu_s
    assert predict(slow).wall_s - predict(quick).wall_s == pytest.approx(10 * 10 * 2.7)
