"""Child processes: killed when they hang, replaced when they end, never orphans."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tasks.functions.processes import ChildEndedError, ProcessPool
from tests.support.children import start_child


@pytest.fixture
def pool():
    pool = ProcessPool("tests.functions.pool_owner")
    yield pool
    pool.close()
    assert not pool.pids


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_child_answers_one_call_after_the_other_whatever_it_prints(pool, capfd):
    assert [pool.call(n) for n in range(3)] == [[0], [1], [2]]
    assert len(pool.pids) == 1
    assert "printed by a child" in capfd.readouterr().out


def test_a_child_that_hangs_is_killed_and_the_others_go_on(pool):
    pool.call("a")
    (pid,) = pool.pids
    with ThreadPoolExecutor(2) as threads:
        hung = threads.submit(pool.call, "hang", 0.3)
        other = threads.submit(pool.call, "b")
        assert other.result() == ["b"]
        with pytest.raises(TimeoutError):
            hung.result()
    assert not is_alive(pid)
    assert pool.call("c") == ["c"]


def test_a_child_that_ends_fails_its_own_call_with_its_exit_code(pool):
    pool.call("a")
    (pid,) = pool.pids
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ChildEndedError) as ended:
        pool.call("b")
    assert ended.value.exit_code == -signal.SIGKILL
    assert pool.call("c") == ["c"]


def test_a_notice_reaches_a_child_amid_a_call(pool):
    pool.start(1)
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(pool.call, "wait")
        while not waits.done():
            pool.notify("now")
            time.sleep(0.01)
        assert waits.result()[:2] == ["wait", "now"]


def test_a_closed_pool_calls_nobody(pool):
    pool.call("a")
    (pid,) = pool.pids
    pool.close()
    pool.close()
    assert not is_alive(pid)
    with pytest.raises(ChildEndedError):
        pool.call("b")


def test_a_hanging_child_ends_with_a_parent_that_is_killed():
    with start_child("tests.functions.pool_owner") as owner:
        assert owner.stdout is not None
        pid = next(int(line) for line in owner.stdout if line.strip().isdigit())
        owner.kill()
    deadline = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
