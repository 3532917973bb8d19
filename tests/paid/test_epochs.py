"""Which answers are used again: of the run, of all runs, of young ones, or of none."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.mock.mock_server import MockServer
from tasks.store.journal.ledger import digest_of
from tasks.store.layout import JOURNAL_FILE
from tasks.store.tables.parquet_store import ParquetStore
from tests.paid import books
from tests.support.paid_runs import STORE, begin, evaluate, go_on, play, write_project

DAY_US = 86_400 * 1_000_000
SMALL = {"optimization__evolution": {"population_size": 3, "generations": 1}}
TWO = {"optimization__evolution": {"population_size": 3, "generations": 2}}


@pytest.fixture
def server() -> Iterator[MockServer]:
    with MockServer() as running:
        yield running


def grow_older(folder: Path, days: float) -> None:
    """Let all answers of the journal be so many days older."""
    older = int(days * DAY_US)
    with sqlite3.connect(folder / STORE / JOURNAL_FILE) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute(
            "UPDATE attempts SET started_us = started_us - ?1, ended_us = ended_us - ?1", (older,)
        )
        rows = connection.execute(
            "SELECT a.*, coalesce(a.outcome, c.outcome) AS answer FROM attempts a "
            "LEFT JOIN calls c ON c.answer_id = a.id"
        ).fetchall()
        for row in rows:
            digest = digest_of({**row}, row["answer"] or "")
            connection.execute("UPDATE attempts SET digest = ? WHERE id = ?", (digest, row["id"]))
    connection.close()


def sources(folder: Path, run_id: str) -> dict[tuple[object, object], object]:
    """Return how many answers of a run came from which run, as the store tells it."""
    rows = ParquetStore(folder / STORE).rows(
        "select source, payer_run_id, n_answers from answer_sources where run_id = $run",
        {"run": run_id},
    )
    return {(row["source"], row["payer_run_id"]): row["n_answers"] for row in rows}


def test_a_second_run_of_one_epoch_pays_nothing_and_says_who_did(
    tmp_path: Path, server: MockServer
):
    write_project(
        tmp_path,
        server.url,
        cache={"epoch": "forever"},
        output__formats=["json", "markdown"],
        **SMALL,
    )
    first = play(begin(tmp_path))
    n_calls = server.stats()["calls"]
    server.reset()
    second = play(begin(tmp_path))
    assert server.stats()["calls"] == 0
    assert (second.n_calls, second.n_cached) == (0, n_calls)
    assert second.leaderboard == first.leaderboard
    assert second.cost_usd == 0.0
    assert sum(cost.n_from_other_runs for cost in second.costs) == n_calls
    assert sources(tmp_path, second.run_id) == {
        ("paid by another run", first.run_id): n_calls,
    }
    report = Path(second.files["report.md"]).read_text(encoding="utf-8")
    assert f"{n_calls} answers of earlier runs reused at no cost." in report


@pytest.mark.slow
def test_an_epoch_of_days_uses_younger_answers_only(tmp_path: Path, server: MockServer):
    write_project(tmp_path, server.url, cache={"epoch": "7d"}, **SMALL)
    first = play(begin(tmp_path))
    n_calls = server.stats()["calls"]
    grow_older(tmp_path, 6.9)
    fed = play(begin(tmp_path))
    assert fed.n_calls == 0
    assert server.stats()["calls"] == n_calls
    assert len(books.ledger(tmp_path)) == n_calls

    grow_older(tmp_path, 0.2)
    paying = play(begin(tmp_path))
    assert paying.n_calls == n_calls
    assert server.stats()["calls"] == 2 * n_calls
    assert first.leaderboard == fed.leaderboard == paying.leaderboard


@pytest.mark.parametrize(
    "epoch",
    [
        "7d",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("off", "forever")),
    ],
)
def test_a_resumed_run_pays_nothing_twice_in_any_epoch(
    tmp_path: Path, server: MockServer, epoch: str
):
    write_project(tmp_path / "unbroken", server.url, cache={"epoch": epoch}, **TWO)
    play(begin(tmp_path / "unbroken"))
    n_calls = server.stats()["calls"]
    server.reset()

    write_project(tmp_path / "broken", server.url, cache={"epoch": epoch}, **TWO)
    with begin(tmp_path / "broken") as run:
        evaluate(run, run.ask().assignments, 0)  # and then its process ends
    assert 0 < server.stats()["calls"] < n_calls
    if epoch == "7d":
        grow_older(tmp_path / "broken", 8.0)  # it was stopped for more than a week
    play(go_on(tmp_path / "broken"))
    assert server.stats()["calls"] == n_calls
    assert books.findings(tmp_path / "broken") == books.findings(tmp_path / "unbroken")
