"""What every ``Journal`` must do. A new implementation joins ``JOURNALS`` and gets all of it."""

import importlib
import inspect
import pkgutil
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import convergence_core.store
from convergence_core.records import Json
from convergence_core.store import SqliteJournal
from convergence_core.store.protocols import Answer, CallIntent, CallTotals, Journal, Settlement

JOURNALS: dict[str, Callable[..., Journal]] = {"sqlite": SqliteJournal}


class Clock:
    """Microseconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_us = 1_000_000

    def __call__(self) -> int:
        return self.now_us


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=JOURNALS)
def reopen(request, tmp_path, clock):
    opened: list[Journal] = []

    def open_again():
        opened.append(JOURNALS[request.param](tmp_path / "store", now_us=clock))
        return opened[-1]

    yield open_again
    for journal in opened:
        journal.close()


@pytest.fixture
def journal(reopen):
    return reopen()


def intent(key: str = "k", **changes: Any) -> CallIntent:
    fields: dict[str, Any] = {
        "call_key": key,
        "run_id": "R",
        "generation": 0,
        "eval_id": f"e-{key}",
        "purpose": "evaluation",
        "provider": "function",
        "model": None,
        "request_sha256": "0" * 64,
        "lease_s": 10.0,
    }
    return CallIntent(**(fields | changes))


def settled(key: str = "k", attempt: int = 1, **changes: Any) -> Settlement:
    fields: dict[str, Any] = {
        "call_key": key,
        "attempt": attempt,
        "state": "done",
        "outcome": {"value": key},
        "started_us": 5,
        "ended_us": 9,
    }
    return Settlement(**(fields | changes))


def states(journal: Journal, *intents: CallIntent, owner: str = "me") -> list[str]:
    return [claim.state for claim in journal.claim(intents, owner)]


def ledger(
    journal: Journal, *columns: str, generation: int | None = 0, run_id: str = "R"
) -> list[tuple[object, ...]]:
    rows = journal.attempts(run_id, generation=generation)
    return [tuple(row[column] for column in columns) for row in rows]


def test_every_journal_is_under_contract():
    found = set()
    for module in pkgutil.iter_modules(convergence_core.store.__path__):
        name = f"convergence_core.store.{module.name}"
        importlib.import_module(name)
        members = inspect.getmembers(sys.modules[name], inspect.isclass)
        found |= {c for _, c in members if c is not Journal and hasattr(c, "abandon")}
    assert found == set(JOURNALS.values())


def test_it_is_a_journal(journal):
    assert isinstance(journal, Journal)


def test_a_new_call_is_granted_and_then_busy_for_everybody(journal, reopen):
    (claim,) = journal.claim([intent()], "me")
    assert (claim.state, claim.attempt, claim.answer) == ("granted", 1, None)
    assert states(journal, intent()) == ["busy"]
    assert states(reopen(), intent(), owner="another") == ["busy"]


def test_a_settled_call_is_a_hit(journal, reopen):
    journal.claim([intent()], "me")
    journal.settle([settled(cost_usd=0.5, tokens_in=3, tokens_out=4)])
    (claim,) = reopen().claim([intent()], "another")
    assert claim.state == "hit"
    assert claim.answer == Answer(
        outcome={"value": "k"},
        started_us=5,
        ended_us=9,
        attempt=1,
        eval_id="e-k",
        cost_usd=0.5,
        tokens_in=3,
        tokens_out=4,
    )


def test_claims_come_back_in_order(journal):
    journal.claim([intent("done"), intent("running")], "me")
    journal.settle([settled("done")])
    found = states(journal, intent("new"), intent("done"), intent("running"), intent("new"))
    assert found == ["granted", "hit", "busy", "busy"]


def test_empty_batches_do_nothing(journal):
    assert journal.claim([], "me") == []
    journal.settle([])
    assert journal.answers([]) == {}


def test_a_failed_call_may_be_tried_again(journal):
    journal.claim([intent()], "me")
    journal.settle([settled(state="failed", outcome={"error_type": "http_503"}, cost_usd=0.0)])
    (claim,) = journal.claim([intent()], "me")
    assert (claim.state, claim.attempt) == ("granted", 2)
    journal.settle([settled(attempt=2)])
    assert ledger(journal, "attempt", "state", "error_type") == [
        (1, "failed", "http_503"),
        (2, "done", None),
    ]


def test_a_failed_outcome_is_never_an_answer(journal):
    journal.claim([intent()], "me")
    journal.settle([settled(state="failed", outcome="no such host")])
    assert journal.answers(["k"]) == {}
    assert states(journal, intent()) == ["granted"]


def test_an_expired_lease_is_taken_over_and_its_attempt_counted_as_lost(journal, clock):
    journal.claim([intent(max_usd=0.75)], "me")
    clock.now_us += 10_000_000 - 1
    assert states(journal, intent(), owner="another") == ["busy"]
    clock.now_us += 1
    (claim,) = journal.claim([intent()], "another")
    assert (claim.state, claim.attempt) == ("granted", 2)
    assert ledger(journal, "attempt", "state", "error_type", "maybe_usd") == [
        (1, "failed", "lost", 0.75),
        (2, "started", None, 0.0),
    ]


def test_a_late_answer_of_a_lost_attempt_wins_and_its_price_replaces_the_bound(journal, clock):
    journal.claim([intent(max_usd=0.75)], "me")
    clock.now_us += 20_000_000
    journal.claim([intent(eval_id="e-other")], "another")
    journal.settle([settled(attempt=1, outcome="first", cost_usd=0.25)])
    journal.settle([settled(attempt=2, outcome="second", cost_usd=0.5)])
    answer = journal.answers(["k"])["k"]
    assert (answer.outcome, answer.attempt, answer.eval_id) == ("first", 1, "e-k")
    assert ledger(journal, "attempt", "state", "cost_usd", "maybe_usd") == [
        (1, "done", 0.25, 0.0),
        (2, "done", 0.5, 0.0),
    ]
    assert journal.totals("R").cost_usd == 0.75


def test_a_late_failure_of_a_lost_attempt_leaves_the_call_to_its_new_owner(journal, clock):
    journal.claim([intent()], "me")
    clock.now_us += 20_000_000
    journal.claim([intent()], "another")
    journal.settle([settled(attempt=1, state="failed", outcome="late")])
    assert states(journal, intent(), owner="third") == ["busy"]


def test_settling_twice_changes_nothing(journal):
    journal.claim([intent()], "me")
    journal.settle([settled(outcome="first", cost_usd=1.0)])
    journal.settle([settled(outcome="second", cost_usd=2.0)])
    journal.settle([settled(state="failed", outcome="third")])
    assert journal.answers(["k"])["k"].outcome == "first"
    assert journal.totals("R").cost_usd == 1.0


@pytest.mark.parametrize(("key", "attempt"), [("unknown", 1), ("k", 2)])
def test_an_attempt_that_was_never_granted_cannot_be_settled(journal, key, attempt):
    journal.claim([intent("k"), intent("also")], "me")
    with pytest.raises(ValueError, match="never granted"):
        journal.settle([settled("also"), settled(key, attempt)])
    assert journal.answers(["also"]) == {}, "the batch is one transaction"


def test_a_hit_by_its_payer_writes_no_row_and_one_by_another_does(journal):
    journal.claim([intent()], "me")
    journal.settle([settled(cost_usd=0.5)])
    for _ in range(2):
        assert states(journal, intent(), intent(eval_id="e-2")) == ["hit", "hit"]
    assert ledger(journal, "eval_id", "attempt", "state", "cost_usd") == [
        ("e-2", 1, "cached", 0.0),
        ("e-k", 1, "done", 0.5),
    ]
    assert journal.totals("R").n_attempts == 1


def test_a_hit_by_another_run_is_in_that_runs_ledger(journal):
    journal.claim([intent(eval_id=None, generation=None)], "me")
    journal.settle([settled()])
    assert states(journal, intent(run_id="S", eval_id=None)) == ["hit"]
    assert ledger(journal, "state", "eval_id", run_id="S") == [("cached", None)]
    assert ledger(journal, "state", generation=None) == [("done",)]


def test_answers_claim_nothing(journal):
    journal.claim([intent("a"), intent("b")], "me")
    journal.settle([settled("a")])
    assert set(journal.answers(["a", "b", "c"])) == {"a"}
    assert states(journal, intent("c")) == ["granted"]


def test_totals_count_attempts_and_no_hits(journal):
    journal.claim([intent("a"), intent("b"), intent("c", max_usd=0.5)], "me")
    journal.settle(
        [
            settled("a", cost_usd=0.25),
            settled("b", state="failed", outcome=None, maybe_usd=0.125),
        ]
    )
    journal.claim([intent("a", eval_id="e-2")], "me")
    assert journal.totals("R") == CallTotals(
        n_attempts=3, n_done=1, n_failed=1, n_in_flight=1, cost_usd=0.25, maybe_usd=0.625
    )
    assert journal.totals("nobody") == CallTotals()


def test_totals_before_a_generation_leave_out_it_and_the_final_cells(journal):
    journal.claim([intent("a"), intent("b", generation=1), intent("c", generation=None)], "me")
    assert journal.totals("R", before_generation=1).n_attempts == 1
    assert journal.totals("R", before_generation=0) == CallTotals()
    assert journal.totals("R").n_attempts == 3


def test_a_sum_of_unknown_prices_alone_is_unknown(journal):
    journal.claim([intent("a"), intent("b")], "me")
    journal.settle([settled("a")])
    assert journal.totals("R").cost_usd is None
    journal.settle([settled("b", cost_usd=0.5)])
    assert journal.totals("R").cost_usd == 0.5


def test_abandoned_claims_are_free_at_once_and_maybe_paid(journal, reopen):
    journal.claim([intent("a", max_usd=0.5), intent("b"), intent("c")], "me")
    journal.settle([settled("c")])
    journal.claim([intent("x", run_id="S")], "me")
    resumed = reopen()
    assert resumed.abandon("R") == 2
    assert resumed.abandon("R") == 0
    found = resumed.claim([intent("a"), intent("b"), intent("c"), intent("x")], "new")
    assert [claim.state for claim in found] == ["granted", "granted", "hit", "busy"]
    assert found[0].attempt == 2
    totals = resumed.totals("R")
    assert (totals.n_failed, totals.n_in_flight, totals.maybe_usd) == (2, 2, 0.5)


def test_ledger_rows_are_those_of_the_table_and_in_order(journal):
    from convergence_core.store.tables import ATTEMPTS

    journal.claim([intent("b"), intent("a"), intent("z", generation=1)], "me")
    journal.settle([settled("a", model="m-1", tokens_in=1, tokens_out=2)])
    rows = journal.attempts("R", generation=0)
    assert [row["call_key"] for row in rows] == ["a", "b"]
    assert rows[0].keys() <= {column.name for column in ATTEMPTS.columns}
    assert rows[0]["model"] == "m-1"
    assert (rows[0]["started_at"], rows[0]["ended_at"]) == (5, 9)
    assert (rows[1]["started_at"], rows[1]["ended_at"]) == (1_000_000, None)
    everything = journal.attempts("R", generation=None, all_generations=True)
    assert [row["call_key"] for row in everything] == ["a", "b", "z"]


def test_any_json_is_an_outcome(journal):
    outcomes: list[Json] = [None, True, -0.0, 2**60, "naïve \x00 \ud800", [], {"": [{"a": None}]}]
    keys = [str(i) for i in range(len(outcomes))]
    journal.claim([intent(key) for key in keys], "me")
    journal.settle(
        [settled(key, outcome=value) for key, value in zip(keys, outcomes, strict=True)]
    )
    found = journal.answers(keys)
    assert [found[key].outcome for key in keys] == outcomes


def test_threads_share_a_journal(journal):
    granted: list[int] = []

    def work():
        for i in range(20):
            (claim,) = journal.claim([intent(str(i))], threading.current_thread().name)
            if claim.state == "granted":
                granted.append(i)
                journal.settle([settled(str(i))])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(granted) == list(range(20))


def test_closing_twice_is_safe(journal):
    journal.close()
    journal.close()
