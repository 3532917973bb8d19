"""Two runs of one system are kept apart, and a dead one does not stand in the way."""

import os
import signal
import sys
import time

import pytest

from convergence_core.errors import LeaseHeldError, StoreWriteError
from tasks.store.journal.lease import Lease
from tasks.store.journal.process_marks import ProcessMark, is_dead, this_process
from tasks.store.journal.sqlite_journal import SqliteJournal
from tests.support.children import start_child


class Clock:
    def __init__(self) -> None:
        self.now_us = 1_760_000_000_000_000

    def __call__(self) -> int:
        return self.now_us


ELSEWHERE = ProcessMark(pid=41, host="elsewhere", machine="another boot", started="5")


def test_a_held_lease_is_refused_with_all_that_is_known_of_its_holder(tmp_path):
    held = Lease(tmp_path, "bot", now_us=Clock()).acquire()
    with held, pytest.raises(LeaseHeldError) as caught:
        Lease(tmp_path, "bot", now_us=Clock()).acquire()
    message = str(caught.value)
    mark = this_process()
    for part in (f"process {mark.pid}", mark.host, "'bot'", "08:53:20 UTC", "08:54:20 UTC"):
        assert part in message


def test_a_holder_on_another_machine_is_replaced_only_after_the_expiry(tmp_path):
    clock = Clock()
    first = Lease(tmp_path, "bot", now_us=clock, mark=ELSEWHERE).acquire()
    second = Lease(tmp_path, "bot", now_us=clock)
    clock.now_us += 60_000_000 - 1
    with pytest.raises(LeaseHeldError, match="elsewhere"):
        second.acquire()
    clock.now_us += 1
    with second.acquire():
        assert not first.renew()
        assert first.lost
        first.close()
        with pytest.raises(LeaseHeldError):
            Lease(tmp_path, "bot", now_us=clock).acquire()


def test_a_thread_renews_a_lease(tmp_path):
    lease = Lease(tmp_path, "bot", lease_s=0.03, mark=ELSEWHERE).acquire()
    with SqliteJournal(tmp_path) as journal:
        query = "SELECT expires_us FROM leases"
        expiries: set[object] = set()
        while len(expiries) < 4:
            with journal._database.reading() as connection:
                expiries |= set(connection.execute(query).fetchall())
    lease.close()


def test_a_renewal_that_fails_for_a_moment_is_tried_again(tmp_path, monkeypatch):
    tried: list[bool] = []
    renew = Lease.renew

    def fail_once(lease: Lease) -> bool:
        tried.append(True)
        if len(tried) == 1:
            raise StoreWriteError("the disk is full")
        return renew(lease)

    monkeypatch.setattr(Lease, "renew", fail_once)
    with Lease(tmp_path, "bot", lease_s=0.03).acquire() as lease:
        while len(tried) < 3:
            time.sleep(0.001)
        assert not lease.lost


def test_a_thread_stops_renewing_what_another_took(tmp_path):
    lease = Lease(tmp_path, "bot", lease_s=0.03).acquire()
    with SqliteJournal(tmp_path) as journal:
        with journal._database.transaction() as connection:
            connection.execute("UPDATE leases SET owner = 'another'")
        while not lease.lost:
            time.sleep(0.001)
        lease.close()
        with journal._database.reading() as connection:
            assert connection.execute("SELECT owner FROM leases").fetchall() == [("another",)]


def test_a_killed_holder_is_replaced_at_once(tmp_path):
    with start_child("tests.store.holder", tmp_path) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(LeaseHeldError, match=f"process {child.pid} "):
            Lease(tmp_path, "bot").acquire()
        child.send_signal(signal.SIGKILL)
        child.stdout.read()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie from now on
        Lease(tmp_path, "bot").acquire().close()
    Lease(tmp_path, "bot").acquire().close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("change", "dead"),
    [
        ({}, False),
        ({"pid": 2**22 + 1}, True),
        ({"started": "1"}, True),
        ({"pid": 2**22 + 1, "machine": "another boot"}, False),
        ({"pid": 2**22 + 1, "machine": ""}, False),
    ],
)
def test_only_a_process_known_to_be_gone_is_dead(change, dead):
    here = this_process()
    fields = {name: getattr(here, name) for name in ("pid", "host", "machine", "started")}
    assert is_dead(ProcessMark(**(fields | change))) is dead
