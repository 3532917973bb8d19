"""A server with every fault at once: the run takes longer, and finds the same to the letter."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from convergence_core.result import RunResult
from tasks.http.retries import Backoff
from tasks.mock.mock_server import MockServer
from tasks.mock.options import MockOptions
from tasks.store.tables.parquet_store import ParquetStore
from tests.paid import books
from tests.support.paid_runs import STORE, begin, go_on, play, write_project

CHAOS = MockOptions(
    rate_429=0.2,
    retry_after_s=0.02,
    rate_500=0.1,
    rate_hang=0.05,
    hang_s=60.0,
    rate_cut=0.05,
    rate_invalid=0.05,
)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let retries wait for milliseconds where a run would wait for seconds."""
    monkeypatch.setattr("tasks.calls.paid_calls.Backoff", lambda: Backoff(base_s=0.01, cap_s=0.05))


@pytest.fixture
def calm(tmp_path: Path) -> Iterator[MockServer]:
    with MockServer() as server:
        yield server


def outcomes(folder: Path) -> Counter[tuple[object, object, object]]:
    """Return how many cells ended in which status, by whose fault, with or without a reward."""
    rows = ParquetStore(folder / STORE).rows(
        "select status, fault, reward is null as missing from evaluations"
    )
    return Counter((row["status"], row["fault"], row["missing"]) for row in rows)


def standings(result: RunResult) -> list[tuple[str, float, float, float, int]]:
    """Return the leaderboard without its counts of failures."""
    return [
        (row.candidate_id, row.mean, row.low, row.high, row.n_cells) for row in result.leaderboard
    ]


@pytest.mark.slow
def test_cells_that_chaos_left_without_an_answer_are_asked_again_on_wish(
    tmp_path: Path, calm: MockServer
):
    size = {
        "optimization__evolution": {"population_size": 6, "generations": 1},
        # An answer of the calm server that is late on a busy machine would be missing for good.
        "api__request__timeout_seconds": 3.0,
        "optimization__execution__max_retries": 0,
    }
    write_project(tmp_path / "calm", calm.url, **size)
    expected = play(begin(tmp_path / "calm", mock_url=calm.url))
    calm.reset()

    write_project(tmp_path / "chaos", calm.url, **size)
    with MockServer(replace(CHAOS, seed=1)) as server:
        found = play(begin(tmp_path / "chaos", mock_url=server.url))
        assert calm.stats()["calls"] == 0
        stats = server.stats()
    rows = books.ledger(tmp_path / "chaos")
    assert [row["attempt"] for row in rows] == [1] * stats["calls"]
    assert found.status == "done"
    assert found.n_missing > 0
    n_missing = found.n_missing
    statuses = outcomes(tmp_path / "chaos")
    assert sum(n for (_, _, is_missing), n in statuses.items() if is_missing) == n_missing
    assert not [key for key in statuses if key[1] == "candidate"]
    before = {cell: r for cell, r in books.rewards(tmp_path / "chaos").items() if r is not None}
    assert len(before) == sum(row["state"] == "done" for row in rows)
    searched = {cell: reward for cell, reward in before.items() if cell[-1] == "search"}

    healed = play(go_on(tmp_path / "chaos", found.label, retry_missing=True, mock_url=calm.url))
    assert healed.status == "done"
    rewards = books.rewards(tmp_path / "chaos", healed.run_id)
    assert rewards == books.rewards(tmp_path / "calm")
    assert books.rewards(tmp_path / "chaos", found.run_id).items() >= before.items()
    assert searched.items() <= rewards.items()
    assert standings(healed) == standings(expected)
    assert healed.winner is not None
    assert expected.winner is not None
    assert healed.winner.params == expected.winner.params
    assert healed.winner.search == expected.winner.search
    assert healed.winner.holdout == expected.winner.holdout
