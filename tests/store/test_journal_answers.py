"""Who gets which answer when answers grow old, and how long a run was at work: in every journal."""

# ruff: noqa: F811 - fixtures are imported
from typing import Any

from convergence_core.ports import LostCall
from convergence_core.records import Json
from tasks.store.journal.sql_journal import Journal
from tests.store.journals import clock, intent, journal, ledger, reopen, settled, states  # noqa: F401

# -- answers that are too old


def answered(journal: Journal, eval_id: str = "e-k", run_id: str = "R", ended_us: int = 9) -> None:
    (claim,) = journal.claim([intent(run_id=run_id, eval_id=eval_id, fresh_since_us=9)], "me")
    assert claim.state == "granted"
    outcome = f"of {run_id} {eval_id}"
    attempt = claim.attempt
    journal.settle([settled(attempt=attempt, outcome=outcome, ended_us=ended_us, cost_usd=0.5)])


def given(journal: Journal, **changes: Any) -> Json:
    (claim,) = journal.claim([intent(**changes)], "me")
    assert claim.state == "hit"
    assert claim.answer is not None
    return claim.answer.outcome


def test_an_answer_that_ended_before_the_limit_is_too_old(journal):
    answered(journal, ended_us=9)
    assert states(journal, intent(run_id="S", fresh_since_us=9)) == ["hit"]
    (claim,) = journal.claim([intent(run_id="T", fresh_since_us=10)], "me")
    assert (claim.state, claim.attempt) == ("granted", 2)


def test_a_new_answer_replaces_one_that_was_too_old(journal):
    answered(journal, ended_us=8)
    answered(journal, run_id="S", ended_us=20)
    assert journal.answers(["k"])["k"].outcome == "of S e-k"
    assert given(journal, run_id="T") == "of S e-k"
    assert ledger(journal, "state", "payer_run_id", run_id="T") == [("cached", "S")]
    assert [journal.totals(run).cost_usd for run in "RST"] == [0.5, 0.5, 0.0]


def test_an_evaluation_never_pays_again_for_an_answer_of_its_own(journal):
    answered(journal, ended_us=8)
    assert given(journal, fresh_since_us=100) == "of R e-k"
    answered(journal, run_id="S", ended_us=20)
    assert given(journal, fresh_since_us=100) == "of R e-k", "also when it has been replaced"
    assert ledger(journal, "state") == [("done",)]


def test_an_old_answer_serves_others_while_a_new_one_is_asked_for_and_if_that_fails(journal):
    answered(journal, ended_us=8)
    strict, loose = intent(run_id="S", fresh_since_us=9), intent(run_id="T")
    assert states(journal, strict, loose, strict) == ["granted", "hit", "busy"]
    journal.settle([settled(attempt=2, state="failed")])
    assert states(journal, intent(run_id="U"), strict) == ["hit", "granted"]
    assert journal.abandon("S") == [
        LostCall(
            call_key="k",
            attempt=3,
            purpose="evaluation",
            provider="function",
            model=None,
            started_us=1_000_000,
            max_usd=None,
        )
    ]
    assert states(journal, intent(run_id="V")) == ["hit"]


def test_whoever_paid_for_an_answer_that_came_second_keeps_it(journal, clock):
    journal.claim([intent()], "me")
    clock.now_us += 20_000_000
    journal.claim([intent(eval_id="e-2")], "another")
    journal.settle([settled(attempt=1, outcome="first")])
    journal.settle([settled(attempt=2, outcome="second")])
    assert given(journal) == "first"
    assert given(journal, eval_id="e-2") == "second"
    assert given(journal, eval_id="e-3") == "first"
    assert ledger(journal, "eval_id", "attempt", "state") == [
        ("e-3", 1, "cached"),
        ("e-k", 1, "done"),
        ("e-2", 2, "done"),
    ]


# -- time at work


def test_active_seconds_run_from_an_owners_first_claim_to_its_last_settlement(journal, clock):
    journal.claim([intent("a"), intent("b")], "me")
    clock.now_us += 2_000_000
    journal.settle([settled("a")])
    assert journal.totals("R").active_s == 2.0
    clock.now_us += 1_500_000
    journal.settle([settled("b", state="failed")])
    assert journal.totals("R").active_s == 3.5


def test_the_time_between_a_stop_and_its_resume_is_not_active(journal, reopen, clock):
    journal.claim([intent("a")], "first")
    clock.now_us += 1_000_000
    journal.claim([intent("b")], "first")  # and now it is killed
    clock.now_us += 3_600_000_000
    resumed = reopen()
    resumed.abandon("R")
    assert resumed.totals("R").active_s == 1.0
    resumed.claim([intent("c")], "second")
    clock.now_us += 500_000
    resumed.settle([settled("c")])
    assert resumed.totals("R").active_s == 1.5
    assert resumed.totals("S").active_s == 0.0
