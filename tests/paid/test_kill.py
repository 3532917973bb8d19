"""kill -9 at any moment of a paid run: nothing that was answered is asked, or paid, twice."""

import json
import os
import random
import signal
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from tests.paid import books
from tests.support.paid_runs import OPENED, Server, is_done, mock_server, start, write_project

WORKERS = 8
END_S = 120.0
LATENCY = ("--latency-ms", 7)
SMALL = {"optimization__evolution": {"population_size": 6, "generations": 2}}


@dataclass
class Life:
    """One process of a run: what both books gained while it lived."""

    log: list[dict[str, Any]]
    claimed: set[tuple[str, int]]
    """Attempts that it began."""
    done_before: set[str]
    """Calls that were answered before it began."""
    in_flight: set[tuple[str, int]]
    """Attempts of unknown fate when it was killed; empty: it ended by itself."""


@dataclass
class Story:
    """All lives of one run."""

    folder: Path
    server: Server
    lives: list[Life] = field(default_factory=list)
    told: list[tuple[set[tuple[str, int]], set[tuple[str, int]]]] = field(default_factory=list)
    """For each opening that was told of: what it listed as maybe paid, and what was in flight."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """The ledger, as last looked at."""
    n_kills: int = 0

    @property
    def log(self) -> list[dict[str, Any]]:
        return [row for life in self.lives for row in life.log]

    def live(self, rng: random.Random | None) -> None:
        """Let a process go on with the run; it is killed at a random moment, or ends by itself."""
        before, n_openings = self.rows, len(self.openings())
        in_flight_before = books.under_way(before)
        process = start(self.folder)
        killed = rng is not None and self._kill(process, rng)
        process.join(END_S)
        code = process.exitcode
        assert code == (-signal.SIGKILL if killed else 0), f"the run's process ended with {code}"
        wait_until_idle(self.server.url)
        self.rows = books.ledger(self.folder)
        in_flight = books.under_way(self.rows)
        self.n_kills += killed
        self.lives.append(
            Life(
                log=self.server.read(),
                claimed=books.made(self.rows) - books.made(before),
                done_before=books.done(before),
                in_flight=in_flight,
            )
        )
        for opening in self.openings()[n_openings:]:
            listed = {(str(key), int(attempt)) for key, attempt in opening["maybe_paid"]}
            self.told.append((listed, in_flight_before))

    def openings(self) -> list[dict[str, Any]]:
        """Return what the processes found when they opened the run."""
        path = self.folder / OPENED
        if not path.exists():
            return []
        # A process may be killed while it writes its line.
        whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def _kill(self, process: ForkServerProcess, rng: random.Random) -> bool:
        """Kill the process so many requests and moments later; False: it ended before that."""
        assert process.pid is not None
        n_requests, delay_s = rng.randint(0, 60), rng.random() * 0.06
        wanted = self.server.n_logged() + n_requests
        while process.is_alive() and self.server.n_logged() < wanted:
            time.sleep(0.002)
        time.sleep(delay_s)  # a random moment, not one at which anything is expected
        if not process.is_alive():
            return False
        os.kill(process.pid, signal.SIGKILL)
        return True


def wait_until_idle(url: str) -> None:
    """Wait until the server has dealt with all that a dead client had sent."""
    before = -1
    while True:
        with urllib.request.urlopen(f"{url}/mock/stats") as answer:  # noqa: S310 - loopback
            stats = json.load(answer)
        if stats["in_flight"] == 0 and stats["calls"] == before:
            return
        before = stats["calls"]


def tell(folder: Path, server: Server, rng: random.Random | None, most: int, **size: Any) -> Story:
    """Take a run to its end through at most so many kills."""
    write_project(folder, server.url, **size)
    story = Story(folder, server)
    while not (story.lives and is_done(folder)):
        story.live(rng if story.n_kills < most else None)
    return story


def check(story: Story, unbroken: Story) -> None:
    """Hold a broken run against its own books, and against the unbroken run."""
    rows, log = story.rows, story.log
    request_of = books.requests_by_key(story.folder)

    # No finished call is repeated: each life claimed unfinished calls only, and sent no more
    # requests of any kind than it had claimed.
    for life in story.lives:
        assert not life.done_before & {key for key, _ in life.claimed}
        sent = Counter(str(row["hash"]) for row in life.log)
        assert not sent - Counter(request_of[key] for key, _ in life.claimed)
        assert len(life.in_flight) <= WORKERS

    # The server's own count is that of the unbroken run and the calls in flight at the kills.
    given_up = books.lost(rows)
    answered = Counter(request_of[key] for key in books.done(rows))
    arrived = Counter(str(row["hash"]) for row in log)
    assert answered == Counter(str(row["hash"]) for row in unbroken.log)
    extra = arrived - answered
    assert not answered - arrived
    assert not extra - Counter(request_of[key] for key, _ in given_up)
    assert len(log) == len(unbroken.log) + extra.total()
    assert extra.total() <= WORKERS * story.n_kills
    assert books.made(rows) - given_up == {
        books.attempt_of(row) for row in rows if row["state"] == "done"
    }

    # Tokens and dollars of the ledger are the server's, but for the lost calls, to the last token.
    paid = counted_once(log, answered)
    assert books.usage(rows) == books.logged_usage(paid)
    assert books.cost(rows) == pytest.approx(books.logged_cost(paid), abs=1e-9)

    # What is maybe paid is told exactly, and never more than once.
    assert given_up == set().union(*(life.in_flight for life in story.lives))
    assert all(listed == in_flight for listed, in_flight in story.told)
    assert all(row["maybe_usd"] == row["max_usd"] > 0.0 for row in rows if is_lost(row))

    # No counter of the budget ever goes back.
    for name in ("calls", "usd", "tokens", "seconds"):
        counted = [opening[name] for opening in story.openings()]
        assert counted == sorted(counted), name

    assert books.findings(story.folder) == books.findings(unbroken.folder)
    assert books.winner(story.folder) == books.winner(unbroken.folder)


def is_lost(row: dict[str, Any]) -> bool:
    return bool(row["error_type"] == "lost")


def counted_once(log: list[dict[str, Any]], answered: Counter[str]) -> list[dict[str, Any]]:
    """Return as many rows of each request as were answered; all rows of a request are equal."""
    left = answered.copy()
    kept = []
    for row in log:
        if left[row["hash"]] > 0:
            left[row["hash"]] -= 1
            kept.append(row)
    return kept


def kill_and_compare(tmp_path: Path, n_kills: int, seed: int, **size: Any) -> None:
    """Kill runs until there were so many kills; hold each run against the unbroken one."""
    rng = random.Random(seed)
    with mock_server(tmp_path / "server", *LATENCY) as server:
        unbroken = tell(tmp_path / "unbroken", server, None, 0, **size)
        assert len(unbroken.lives) == 1
        kills = 0
        while kills < n_kills:
            folder = tmp_path / f"broken-{kills}"
            story = tell(folder, server, rng, n_kills - kills, **size)
            check(story, unbroken)
            assert story.n_kills > 0, "no kill came before the end"
            kills += story.n_kills


@pytest.mark.slow
def test_a_paid_run_killed_at_twelve_random_moments_pays_nothing_twice(tmp_path: Path):
    kill_and_compare(tmp_path, 12, seed=2, **SMALL)
