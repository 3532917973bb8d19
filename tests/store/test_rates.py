"""Moments to call at: even, without bursts, each given once, whoever asks."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks.store.journal.rates import MOST_AHEAD_S, Rates
from tests.store.journals import Clock
from tests.store.postgres_server import postgres_server


@pytest.fixture(params=["sqlite", "postgres"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Rates]]:
    opened: list[Rates] = []
    url = postgres_server().new_schema() if request.param == "postgres" else None

    def open_again() -> Rates:
        rates = Rates(tmp_path / "store", url)
        opened.append(rates)
        return rates

    yield open_again
    for rates in opened:
        rates.close()


def test_processes_get_moments_in_turn_and_none_twice(reopen: Callable[[], Rates]):
    """The rate is so low that no time passes between two of them as far as it can tell."""
    one, two = reopen(), reopen()
    waits = [rates.take("a", 0.01) for rates in (one, two, one, two)]
    assert waits == pytest.approx([0.0, 100.0, 200.0, 300.0], abs=20.0)
    assert one.take("b", 0.01) == pytest.approx(0.0, abs=20.0)


def test_threads_get_every_moment_once(reopen: Callable[[], Rates]):
    rates = [reopen() for _ in range(4)]
    waits: list[float] = []

    def take(own: Rates) -> None:
        waits.extend([own.take("a", 0.02) for _ in range(10)])

    threads = [threading.Thread(target=take, args=(own,)) for own in rates]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(waits) == pytest.approx([50.0 * n for n in range(40)], abs=25.0)


def test_moments_that_passed_are_not_saved_up(tmp_path: Path):
    clock = Clock()
    with Rates(tmp_path, now_us=clock) as rates:
        assert rates.take("a", 10.0) == 0.0
        clock.now_us += 5_000_000
        assert [rates.take("a", 10.0) for _ in range(3)] == [0.0, 0.1, 0.2]


def test_a_clock_that_was_set_back_stops_nobody(tmp_path: Path):
    clock = Clock()
    clock.now_us += round(2 * MOST_AHEAD_S * 1e6)
    with Rates(tmp_path, now_us=clock) as rates:
        rates.take("a", 10.0)
        clock.now_us -= round(1.5 * MOST_AHEAD_S * 1e6)
        assert [rates.take("a", 10.0) for _ in range(2)] == [0.0, 0.1]
