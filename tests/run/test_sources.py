"""The report's table of sources: who got what, and what it brought."""

import pytest

from convergence_core.search.source_report import POOL
from tasks.report.document import document
from tests.support.stepped_runs import begin, play
from tests.support.writing_runs import Scribe, rows, write_project

WARMTH = {"type": "float", "min": 0.0, "max": 1.0, "default": 0.5}


@pytest.mark.slow
def test_the_report_says_who_got_what_and_what_it_brought(tmp_path):
    with Scribe().server() as server:
        write_project(
            tmp_path,
            server.url,
            search_space__parameters__warmth=WARMTH,
            optimization__evolution={"population_size": 6, "generations": 4},
        )
        result = play(begin(tmp_path))
    found = {report.source: report for report in result.sources}
    assert set(found) == {POOL, "edits"}
    (n,) = rows(tmp_path, "SELECT count(*) AS n FROM candidates WHERE origin = 'written'")
    assert found["edits"].n_settings == n["n"]
    (paid,) = rows(
        tmp_path,
        "SELECT count(*) AS n, sum(cost_usd) AS usd FROM attempts WHERE purpose = 'writing'",
    )
    assert found["edits"].n_calls == paid["n"]
    assert found["edits"].cost_usd == pytest.approx(paid["usd"])
    assert found[POOL].n_calls == 0
    assert "Where settings came from" in repr(document(result))


@pytest.mark.slow
def test_one_source_alone_needs_no_table(tmp_path):
    write_project(
        tmp_path, None, prompts={"enabled": False}, search_space__parameters__warmth=WARMTH
    )
    result = play(begin(tmp_path))
    assert result.sources == ()
    assert "Where settings came from" not in repr(document(result))
