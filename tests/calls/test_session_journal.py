"""The session and its journal: what is stored, replayed, shared, and never used twice."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from convergence_core.errors import CandidateFault, InfrastructureFault, StoreWriteError
from convergence_core.records import Case, Json, Reply
from tasks.metrics.metrics import Compared
from tasks.secrets.redaction import Redactor, Secrets
from tasks.store.journal.sqlite_journal import SqliteJournal
from tests.support.scratch_journal import ScratchJournal
from tests.support.sessions import ScriptedTarget, assignment, function_target, right, session


def test_a_stored_answer_is_not_asked_again_and_gives_the_same_evaluation(tmp_path):
    journal = SqliteJournal(tmp_path)
    plan = assignment({"k": 1}, ["c0", "c1"])
    ticks = iter(range(1, 10**6))
    with session(ScriptedTarget(right), journal=journal, now_us=lambda: next(ticks)) as s:
        first = s.evaluate(plan, 0)
    never = ScriptedTarget(lambda p, c: pytest.fail("asked again"))
    with session(never, journal=journal, calls_used=2) as s:
        again = s.evaluate(plan, 0)
        assert s.budget.spent.calls == 2
    journal.close()
    assert again == first
    assert never.n_calls == 0


def test_a_stored_candidate_fault_is_replayed_to_the_letter(tmp_path):
    def raises(case_input, params):
        raise ValueError("é" * 9000)

    journal = SqliteJournal(tmp_path)
    plan = assignment({"k": 1}, ["c0"])
    with session(function_target(raises), journal=journal) as s:
        first = s.evaluate(plan, 0)
    with session(function_target(raises), journal=journal) as s:
        again = s.evaluate(plan, 0)
        assert s.budget.spent.calls == 0
    journal.close()
    assert again == first
    assert first.evaluations[0].error is not None
    assert len(first.evaluations[0].error) <= 4000


def test_a_failed_call_is_never_reused():
    journal = ScratchJournal()
    plan = assignment({"k": 1}, ["c0"])
    fault = InfrastructureFault("down", error_type="network")
    with session(ScriptedTarget(lambda p, c: fault), journal=journal) as s:
        assert s.evaluate(plan, 0).evaluations[0].reward is None
    with session(ScriptedTarget(right), journal=journal) as s:
        assert s.evaluate(plan, 0).evaluations[0].reward == 1.0


def test_an_answer_that_another_evaluation_paid_for_is_cached_and_costs_nothing():
    target = ScriptedTarget(lambda p, c: Reply(value=0, latency_ms=5.0, cost_usd=0.25))
    with session(target) as s:
        plan = assignment({"k": 1}, ["c0"])
        paid = s.evaluate(plan, 0).evaluations[0]
        again = s.evaluate(plan, 1).evaluations[0]
    assert target.n_calls == 1
    assert (paid.cached, paid.cost_usd, paid.price_usd, paid.latency_ms) == (
        False,
        0.25,
        0.25,
        5.0,
    )
    assert (again.cached, again.cost_usd, again.price_usd, again.latency_ms) == (
        True,
        0.0,
        0.25,
        5.0,
    )


def test_a_fresh_cell_is_asked_although_the_search_has_an_answer():
    target = ScriptedTarget(right)
    with session(target) as s:
        s.evaluate(assignment({"k": 1}, ["c0"]), 0)
        s.evaluate(assignment({"k": 1}, ["c0"], role="fresh"), None)
    assert target.n_calls == 2


def test_repeats_are_calls_of_their_own():
    target = ScriptedTarget(right)
    with session(target) as s:
        s.evaluate(assignment({"k": 1}, ["c0"], repeats=3), 0)
    assert target.n_calls == 3


def test_two_cells_that_want_the_same_call_at_once_make_it_once():
    class SameRequest(ScriptedTarget):
        def request(self, params, case):
            return case.input

    target = SameRequest(right)
    both = threading.Barrier(2)
    with session(target) as s:

        def evaluate(k):
            both.wait()
            return s.evaluate(assignment({"k": k}, ["c0", "c1"]), 0)

        with ThreadPoolExecutor(2) as pool:
            trials = list(pool.map(evaluate, range(2)))
    assert target.n_calls == 2
    evaluations = [e for trial in trials for e in trial.evaluations]
    assert sorted(e.cached for e in evaluations) == [False, False, True, True]


def test_a_spent_budget_still_reads_what_was_paid_for():
    journal = ScratchJournal()
    plan = assignment({"k": 1}, ["c0", "c1", "c2"])
    with session(ScriptedTarget(right), journal=journal, max_calls=2, workers=1) as s:
        first = s.evaluate(plan, 0)
    with session(ScriptedTarget(right), journal=journal, max_calls=2, calls_used=2) as s:
        again = s.evaluate(plan, 0)
        assert s.budget.spent.calls == 2
    assert again == first


def test_a_call_found_in_the_journal_gives_its_place_in_the_budget_back():
    journal = ScratchJournal()
    with session(ScriptedTarget(right), journal=journal) as s:
        s.evaluate(assignment({"k": 1}, ["c0", "c1", "c2"]), 0)
    target = ScriptedTarget(right)
    with session(target, journal=journal, max_calls=4, calls_used=3, workers=4) as s:
        trial = s.evaluate(assignment({"k": 1}, ["c0", "c1", "c2", "c3"]), 0)
    assert [e.status for e in trial.evaluations] == ["ok"] * 4
    assert target.n_calls == 1


def test_journal_that_cannot_write_ends_the_evaluation_with_its_error():
    journal = ScratchJournal(error=StoreWriteError("disk full"))
    target = ScriptedTarget(right)
    with session(target, journal=journal) as s:
        with pytest.raises(StoreWriteError, match="disk full"):
            s.evaluate(assignment({"k": 1}, ["c0"]), 0)
        with pytest.raises(StoreWriteError):
            s.evaluate(assignment({"k": 1}, ["c1"]), 0)
    assert target.n_calls == 0


def test_an_answer_that_cannot_be_settled_is_not_used():
    journal = ScratchJournal()

    def answer(params, case):
        journal.error = StoreWriteError("disk full")
        return 0

    with session(ScriptedTarget(answer), journal=journal) as s, pytest.raises(StoreWriteError):
        s.evaluate(assignment({"k": 1}, ["c0"]), 0)


def test_without_text_the_verdict_is_kept_and_no_answer_is():
    journal = ScratchJournal()
    target = ScriptedTarget(lambda p, c: "the whole answer")
    known = {"c0": Case(case_id="c0", input="the whole question", expected="the whole answer")}
    plan = assignment({"k": 1}, ["c0"])
    with session(target, journal=journal, keep_text=False, known_cases=known) as s:
        first = s.evaluate(plan, 0)
    with session(target, journal=journal, keep_text=False, known_cases=known) as s:
        again = s.evaluate(plan, 0)
    assert first == again
    assert first.evaluations[0].reward == 1.0
    assert first.evaluations[0].request_text is None
    assert first.evaluations[0].response_text is None
    assert target.n_calls == 1
    assert not any("whole" in text for text in journal.stored)


def test_what_is_stored_is_redacted_and_an_answer_that_is_masked_has_no_score():
    secret = "k7-very-secret-value"  # noqa: S105 - not one
    redact = Redactor(["TEAM"], secrets=Secrets({"TEAM": secret}))
    journal = ScratchJournal()
    seen: list[object] = []

    def compare(result, expected):
        seen.append(result)
        return 1.0

    def answer(params, case):
        if case.case_id == "c0":
            answer: Json = {"text": f"your key is {secret}", secret: [secret]}
            return Reply(value=answer, latency_ms=1.0, provider="scripted", cost_usd=0.25)
        return CandidateFault(f"bad key {secret}", error_type="http_400", details=secret)

    known = {name: Case(case_id=name, input=f"ask {secret}") for name in ("c0", "c1")}
    with session(
        ScriptedTarget(answer),
        journal=journal,
        redact=redact,
        metrics=[Compared("quality", compare)],
        known_cases=known,
    ) as s:
        trial = s.evaluate(assignment({"k": 1}, ["c0", "c1"]), 0)
    assert seen == []
    masked = trial.evaluations[0]
    assert (masked.reward, masked.fault, masked.error_type) == (None, "evaluator", "redacted")
    assert masked.error is not None
    assert "the value of the environment variable TEAM, so it is masked" in masked.error
    assert '{"[redacted]":["[redacted]"],"text":"your key is [redacted]"}' in masked.error
    assert journal.totals("run-1").cost_usd == 0.25
    assert secret not in repr(trial.evaluations)
    assert not any(secret in text for text in journal.stored)


def test_cells_that_run_together_share_a_transaction(tmp_path):
    batches: dict[str, list[int]] = {"claim": [], "settle": []}
    journal = ScratchJournal(on_batch=lambda kind, size: batches[kind].append(size))
    with session(ScriptedTarget(right), n_cases=80, workers=8, journal=journal) as s:
        s.evaluate(assignment({"k": 1}, [f"c{i}" for i in range(80)]), 0)
    for sizes in batches.values():
        assert sum(sizes) == 80
        assert max(sizes) == 8
