"""Several processes on one journal: whoever asks first pays, and all get the answer."""

from collections import Counter
from pathlib import Path

import pytest

from tasks.store.journal.sqlite_journal import open_journal
from tests.paid.sharer import RUN, Sharer
from tests.support.paid_runs import STORE, mock_server, write_project

N_CASES = 20


@pytest.mark.parametrize(
    ("n_processes", "n_candidates"),
    [(4, 10), pytest.param(8, 100, marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_sessions_of_several_processes_call_once_for_each_cell(
    tmp_path: Path, n_processes: int, n_candidates: int
):
    with mock_server(tmp_path / "server", "--latency-ms", 5) as server:
        write_project(tmp_path, server.url)
        sharers = [Sharer(tmp_path, n_candidates, order) for order in range(n_processes)]
        for sharer in sharers:
            sharer.go()
        found = [sharer.rewards() for sharer in sharers]
        log = server.read()
    n_cells = n_candidates * N_CASES
    assert len(log) == n_cells
    assert set(Counter(row["hash"] for row in log).values()) == {1}
    assert len(found[0]) == n_cells
    assert None not in found[0].values()
    assert all(rewards == found[0] for rewards in found)

    journal = open_journal(tmp_path / STORE)
    rows = journal.attempts(RUN, generation=0)
    journal.close()
    assert Counter(row["state"] for row in rows) == {"done": n_cells}
    assert sum(int(str(row["tokens_in"])) for row in rows) == sum(
        row["prompt_tokens"] for row in log
    )
