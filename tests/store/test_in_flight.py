"""Requests in flight are seen by other processes, and end with the process that answers."""

import os
import subprocess
import sys
from pathlib import Path

from tasks.store.in_flight import FILE, RequestsInFlight, is_answering, seconds_since_request

HOLD = """
import sys
from pathlib import Path
from tasks.store.in_flight import RequestsInFlight
with RequestsInFlight(Path(sys.argv[1])).request():
    print("answering", flush=True)
    sys.stdin.read()
"""


def test_requests_overlap(tmp_path: Path):
    requests = RequestsInFlight(tmp_path)
    with requests.request():
        with requests.request():
            assert is_answering(tmp_path)
        assert is_answering(tmp_path)
        assert seconds_since_request(tmp_path) == 0.0
    assert not is_answering(tmp_path)


def test_the_last_end_counts(tmp_path: Path):
    with RequestsInFlight(tmp_path).request():
        pass
    at = (tmp_path / FILE).stat().st_mtime - 100
    os.utime(tmp_path / FILE, (at, at))
    since = seconds_since_request(tmp_path)
    assert since is not None
    assert since >= 100


def test_a_killed_process_answers_nothing(tmp_path: Path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "answering\n"
    assert is_answering(tmp_path)
    child.kill()
    child.wait()
    child.communicate()
    assert not is_answering(tmp_path)
