"""kill -9 while scripts run in sessions: none is left open, and nothing is paid twice."""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("playwright")

from tasks.store.tables.parquet_store import ParquetStore
from tasks.targets.local_browser import chromium_path
from tests.paid import books
from tests.support.browserbase_form import BrowserSessions, browser_server
from tests.support.configuration_files import write_configuration
from tests.support.paid_runs import STORE, begin, is_done, start

SCRIPT: Final = """
async def run(page, case, parameters):
    await page.set_content(f"<h1>{case['n']}</h1>")
    await page.wait_for_timeout(100)
    return await page.inner_text("h1")
"""
WORKERS: Final = 2

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium_path() is None, reason="chromium is missing"),
]


def write_scraper(folder: Path, url: str) -> None:
    (folder / "scrape.py").write_text(SCRIPT, encoding="utf-8")
    tree: dict[str, Any] = {
        "api": {
            "name": "scraper",
            "kind": "browserbase",
            "endpoint": url,
            "function": "scrape.py:run",
            # A session that is kept alive outlives the process that uses it.
            "request": {"timeout_seconds": 20, "body": {"keepAlive": True, "region": "{region}"}},
        },
        "search_space": {
            "parameters": {
                "region": {"type": "categorical", "choices": ["us-west-2", "eu-central-1"]},
            }
        },
        "evaluation": {
            "test_cases": [
                {"id": f"c{n}", "input": {"n": n}, "expected": str(n)} for n in range(4)
            ],
            "metrics": {"right": {"type": "exact_match", "weight": 1}},
        },
        "optimization": {
            "seed": 5,
            "evolution": {"population_size": 3, "elite_size": 1, "generations": 1},
            "execution": {"parallel_workers": WORKERS, "early_stopping": {"enabled": False}},
        },
        "prices": {"browserbase": {"minute": 0.002}},
        "budget": {"max_usd": 1.0},
        "output": {"formats": ["json"]},
    }
    write_configuration(folder, tree, {})


def statuses(server: BrowserSessions) -> Counter[str]:
    return Counter(session.status for session in tuple(server.sessions.values()))


def is_busy(server: BrowserSessions, n_ended: int) -> bool:
    found = statuses(server)
    return found["COMPLETED"] >= n_ended and found["RUNNING"] > 0


def kill_when(process: ForkServerProcess, look: Callable[[], bool]) -> None:
    while process.is_alive() and not look():
        time.sleep(0.002)  # another process works; there is nothing to wait on
    assert process.is_alive()
    process.kill()
    process.join()


def test_runs_killed_in_sessions_leave_none_open_and_pay_nothing_twice(tmp_path: Path):
    with browser_server() as server:
        write_scraper(tmp_path, server.url)
        known: set[str] = set()
        attempts: set[tuple[str, int]] = set()
        n_left = 0
        for n_ended in (2, 5):
            kill_when(start(tmp_path), partial(is_busy, server, n_ended))
            n_left += statuses(server)["RUNNING"]
            rows = books.ledger(tmp_path)
            assert not known & {key for key, _ in books.made(rows) - attempts}
            known, attempts = books.done(rows), books.made(rows)
        assert n_left > 0  # so that there was something to release
        process = start(tmp_path)
        process.join()
        assert is_done(tmp_path)
        assert set(statuses(server)) == {"COMPLETED"}
        rows = books.ledger(tmp_path)
        assert not known & {key for key, _ in books.made(rows) - attempts}
        done, lost = books.done(rows), books.lost(rows)
        assert len(done) <= statuses(server).total() <= len(done) + len(lost)
        assert len(lost) <= 2 * WORKERS
        stored = ParquetStore(tmp_path / STORE).rows("SELECT recording_url FROM evaluations")
        watched = {str(row["recording_url"]).rpartition("/")[2] for row in stored}
        assert len(watched) == len(stored) > 0
        assert watched <= {*server.sessions}
        assert sum(row["cost_usd"] or 0.0 for row in rows) == pytest.approx(len(done) * 0.002)


def test_a_new_run_of_the_system_releases_what_a_killed_one_left_open(tmp_path: Path):
    with browser_server() as server:
        write_scraper(tmp_path, server.url)
        kill_when(start(tmp_path), lambda: statuses(server)["RUNNING"] == WORKERS)
        assert statuses(server)["RUNNING"] == WORKERS
        with begin(tmp_path):
            assert statuses(server)["RUNNING"] == 0
