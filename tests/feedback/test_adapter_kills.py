"""A killed process loses and doubles no change of an adapter, and leaves none half-written."""

import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from convergence_core.feedback.adapter_records import STATUSES
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.feedback.adapters import saved_adapter
from tests.support.children import start_child


def check(path: Path, lines: list[str]) -> None:
    """Check that a store holds what its killed writer said, and is sound."""
    with FeedbackStore(path) as store:
        adapters = AdapterStore(store)
        records = {one.version: one for one in adapters.records()}
        events = store.fetch("SELECT version, status FROM adapter_events ORDER BY seq")
        counted = Counter(events)
        last = dict(events)
        ratings = Counter(store.fetch("SELECT interaction_id, rating FROM ratings"))
        for line in lines:
            what, which = line.split()
            if what in STATUSES:
                assert counted[which, what] == 1, line
            else:
                assert ratings[which, 4 if what == "rated" else 1] == 1, line
        # A restored adapter is activated again; nothing else happens twice.
        assert {
            key for key, n in counted.items() if n > 1 and key[1] not in {"active", "inactive"}
        } == set()
        assert max(ratings.values()) == 1
        assert {version: one.status for version, one in records.items()} == last
        assert [one.status for one in records.values()].count("active") <= 1
        for one in records.values():
            assert adapters.files_problem(one) is None, one.version
            assert adapters.files_problem(one) is None
        stale = store.fetch(
            "SELECT r.version FROM adapter_rows r JOIN ratings n ON n.interaction_id = r.interaction_id "
            "AND n.seq > r.event_seq"
        )
        assert {records[version].status for (version,) in stale} <= {"stale"}
        assert store.fetch("PRAGMA integrity_check") == [("ok",)]


def kill_randomly(tmp_path: Path, rng: random.Random, n_kills: int) -> None:
    path, source = tmp_path / "store", saved_adapter(tmp_path / "trained")
    for number in range(n_kills):
        with start_child(
            "tests.feedback.adapter_writer", path, f"k{number}", source, 10_000
        ) as child:
            assert child.stdout is not None
            lines = [child.stdout.readline() for _ in range(rng.randint(1, 25))]
            child.send_signal(signal.SIGKILL)
            lines += child.stdout.read().rpartition("\n")[0].splitlines()
        check(path, [line for line in lines if line.strip()])


def test_a_killed_writer_loses_and_doubles_no_change(tmp_path: Path):
    kill_randomly(tmp_path, random.Random(3), n_kills=2)


@pytest.mark.slow
def test_twelve_random_kills_lose_and_double_no_change(tmp_path: Path):
    kill_randomly(tmp_path, random.Random(4), n_kills=12)
