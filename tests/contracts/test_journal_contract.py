"""What every ``Journal`` must do. A new implementation joins ``JOURNALS`` and gets all of it."""

# ruff: noqa: F811 - fixtures are imported
import importlib
import inspect
import pkgutil
import sys
import threading
from typing import Any

import pytest

import tasks.store
from convergence_core.ports import CallTotals, LostCall, StoredAnswer
from convergence_core.records import Json, Usage
from tasks.store.journal.sql_journal import Journal
from tests.store.journals import (
    JOURNALS,
    USED,
    clock,  # noqa: F401
    intent,
    journal,  # noqa: F401
    ledger,
    reopen,  # noqa: F401
    settled,
    states,
)


def test_every_journal_is_under_contract():
    found = set()
    for module in pkgutil.walk_packages(tasks.store.__path__, "tasks.store."):
        name = module.name
        importlib.import_module(name)
        members = inspect.getmembers(sys.modules[name], inspect.isclass)
        journals = {c for _, c in members if hasattr(c, "abandon") and not inspect.isabstract(c)}
        found |= journals - {Journal}
    assert found == {kind for kind, _ in JOURNALS.values()}


def test_a_new_call_is_granted_and_then_busy_for_everybody(journal, reopen):
    (claim,) = journal.claim([intent()], "me")
    assert (claim.state, claim.attempt, claim.answer) == ("granted", 1, None)
    assert states(journal, intent()) == ["busy"]
    assert states(reopen(), intent(), owner="another") == ["busy"]


def test_a_settled_call_is_a_hit(journal, reopen):
    journal.claim([intent()], "me")
    journal.settle([settled(cost_usd=0.5, usage=USED)])
    (claim,) = reopen().claim([intent()], "another")
    assert claim.state == "hit"
    assert claim.answer == StoredAnswer(
        outcome={"value": "k"},
        started_us=5,
        ended_us=9,
        attempt=1,
        run_id="R",
        eval_id="e-k",
        cost_usd=0.5,
        usage=USED,
    )


def test_claims_come_back_in_order(journal):
    journal.claim([intent("done"), intent("running")], "me")
    journal.settle([settled("done")])
    found = states(journal, intent("new"), intent("done"), intent("running"), intent("new"))
    assert found == ["granted", "hit", "busy", "busy"]


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
        (2, "started", None, None),
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
    assert ledger(journal, "eval_id", "attempt", "state", "cost_usd", "payer_run_id") == [
        ("e-2", 1, "cached", 0.0, "R"),
        ("e-k", 1, "done", 0.5, None),
    ]
    assert journal.totals("R").n_attempts == 1


def test_sums_over_the_ledger_are_what_was_used_since_a_hit_used_nothing(journal):
    journal.claim([intent()], "me")
    journal.settle([settled(usage=USED, cost_usd=0.5, price_version="2025-06-01")])
    (claim,) = journal.claim([intent(eval_id="e-2")], "me")
    assert claim.answer is not None
    assert claim.answer.usage == USED, "the answer tells what it took"
    columns = (
        "state",
        "tokens_in",
        "cached_tokens",
        "cache_write_tokens",
        "tokens_out",
        "reasoning_tokens",
        "cost_usd",
        "price_version",
    )
    assert ledger(journal, *columns) == [
        ("cached", 0, 0, 0, 0, 0, 0.0, None),
        ("done", 30, 20, 5, 4, 3, 0.5, "2025-06-01"),
    ]
    assert journal.totals("R").tokens == 34


def test_a_hit_by_another_run_is_in_that_runs_ledger(journal):
    journal.claim([intent(eval_id=None, generation=None)], "me")
    journal.settle([settled()])
    assert states(journal, intent(run_id="S", eval_id=None)) == ["hit"]
    found = ledger(journal, "state", "eval_id", "payer_run_id", run_id="S")
    assert found == [("cached", None, "R")]
    assert ledger(journal, "state", generation=None) == [("done",)]


def test_answers_claim_nothing(journal):
    journal.claim([intent("a"), intent("b")], "me")
    journal.settle([settled("a")])
    assert set(journal.answers(["a", "b", "c"])) == {"a"}
    assert states(journal, intent("c")) == ["granted"]


def test_totals_count_attempts_and_no_hits(journal):
    journal.claim([intent("a"), intent("b"), intent("c", max_usd=0.5, max_tokens=70)], "me")
    journal.settle(
        [
            settled("a", cost_usd=0.25, usage=USED),
            settled("b", state="failed", outcome=None, maybe_usd=0.125, maybe_tokens=7),
        ]
    )
    journal.claim([intent("a", eval_id="e-2")], "me")
    assert journal.totals("R") == CallTotals(
        n_attempts=3,
        n_done=1,
        n_failed=1,
        n_in_flight=1,
        cost_usd=0.25,
        maybe_usd=0.625,
        tokens=34,
        maybe_tokens=77,
    )
    assert journal.totals("nobody") == CallTotals()


def test_answers_that_told_no_usage_count_with_their_worst_case(journal):
    keys = ["silent", "half", "told", "refused", "unbounded"]
    worst = {"max_usd": 0.5, "max_tokens": 70}
    journal.claim([intent(key, **worst) for key in keys[:-1]] + [intent("unbounded")], "me")
    journal.settle(
        [
            settled("silent"),
            settled("half", usage=Usage(prompt_tokens=30)),
            settled("told", cost_usd=0.25, usage=USED),
            settled("refused", cost_usd=0.0),
            settled("unbounded"),
        ]
    )
    totals = journal.totals("R")
    assert (totals.n_unpriced, totals.unpriced_usd, totals.unpriced_tokens) == (3, 1.0, 110)
    assert (totals.cost_usd, totals.tokens) == (0.25, 64)


def test_totals_before_a_generation_leave_out_it_and_the_final_cells(journal):
    journal.claim([intent("a"), intent("b", generation=1), intent("c", generation=None)], "me")
    assert journal.totals("R", before_generation=1).n_attempts == 1
    assert journal.totals("R", before_generation=0) == CallTotals()
    assert journal.totals("R").n_attempts == 3


def test_abandoned_claims_are_free_at_once_and_maybe_paid(journal, reopen, clock):
    journal.claim([intent("b"), intent("c")], "me")
    clock.now_us += 1
    journal.claim([intent("a", max_usd=0.5, max_tokens=9, model="m", purpose="judge")], "me")
    journal.settle([settled("c")])
    journal.claim([intent("x", run_id="S")], "me")
    resumed = reopen()
    common: dict[str, Any] = {"attempt": 1, "provider": "function"}
    assert resumed.abandon("R") == [
        LostCall(
            call_key="b",
            purpose="evaluation",
            model=None,
            started_us=1_000_000,
            max_usd=None,
            **common,
        ),
        LostCall(
            call_key="a",
            purpose="judge",
            model="m",
            started_us=1_000_001,
            max_usd=0.5,
            **common,
        ),
    ]
    assert resumed.abandon("R") == []
    columns = ("call_key", "state", "error_type", "max_usd", "maybe_usd", "maybe_tokens")
    assert ledger(resumed, *columns)[:2] == [
        ("a", "failed", "lost", 0.5, 0.5, 9),
        ("b", "failed", "lost", None, None, None),
    ], "an unknown worst case stays unknown"
    found = resumed.claim([intent("a"), intent("b"), intent("c"), intent("x")], "new")
    assert [claim.state for claim in found] == ["granted", "granted", "hit", "busy"]
    assert found[0].attempt == 2
    totals = resumed.totals("R")
    assert (totals.n_failed, totals.n_in_flight, totals.maybe_usd) == (2, 2, 0.5)
    assert totals.maybe_tokens == 9


def test_ledger_rows_are_those_of_the_table_and_in_order(journal):
    from tasks.store.tables.tables import ATTEMPTS

    journal.claim([intent("b"), intent("a"), intent("z", generation=1)], "me")
    journal.settle([settled("a", model="m-1", usage=USED)])
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


def test_a_batch_of_many_calls_is_one_transaction(journal):
    keys = [str(number) for number in range(300)]
    claims = journal.claim([intent(key) for key in reversed(keys)], "me")
    assert {(claim.state, claim.attempt) for claim in claims} == {("granted", 1)}
    journal.settle([settled(key, outcome=key) for key in keys])
    assert journal.totals("R").n_done == 300
    assert all(answer.outcome == key for key, answer in journal.answers(keys).items())


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
