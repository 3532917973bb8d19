"""The session: results, limits, retries, budget, stop."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from convergence_core.config.optimization import ExecutionConfig
from convergence_core.errors import (
    CandidateFault,
    ConfigurationError,
    EvaluatorFault,
    InfrastructureFault,
    Problem,
)
from convergence_core.ports import Metric
from convergence_core.records import eval_id_of
from convergence_core.search.study import limit_reached
from tasks.http.retries import Backoff
from tasks.metrics.metrics import Compared, SuccessRate
from tests.support.scratch_journal import ScratchJournal
from tests.support.sessions import (
    ScriptedTarget,
    assignment,
    equal_metric,
    function_target,
    right,
    session,
)
from tests.support.single_metrics import metric


def test_evaluations_come_in_the_order_of_the_cells():
    with session(ScriptedTarget(right)) as s:
        plan = assignment({"k": 1}, ["c3", "c0", "c7"])
        trial = s.evaluate(plan, 2)
    assert [e.cell for e in trial.evaluations] == list(plan.cells)
    assert [e.reward for e in trial.evaluations] == [1.0, 1.0, 1.0]
    first = trial.evaluations[0]
    assert first.eval_id == eval_id_of("run-1", 2, plan.cells[0])
    assert (first.status, first.attempt, first.cached, first.generation) == ("ok", 1, False, 2)
    assert first.request_text == '{"input":{"x":3},"params":{"k":1}}'
    assert first.response_text == "3"
    assert first.started_us is not None
    assert first.ended_us is not None


def test_candidates_fault_is_reward_zero_with_its_reason_and_traceback():
    def raises(case_input, params):
        raise KeyError("no such thing")

    metrics: list[Metric] = [equal_metric(), SuccessRate("success_rate")]
    with session(function_target(raises), metrics=metrics) as s:
        (evaluation,) = s.evaluate(assignment({"k": 1}, ["c0"]), 0).evaluations
    assert (evaluation.status, evaluation.fault, evaluation.reward) == ("error", "candidate", 0.0)
    assert evaluation.error_type == "KeyError"
    assert evaluation.error is not None
    assert "no such thing" in evaluation.error
    assert "test_session.py" in evaluation.error
    assert "tasks/functions/workers.py" not in evaluation.error
    assert evaluation.metrics == {"success_rate": 0.0}


def test_infrastructure_fault_is_missing_and_never_zero():
    fault = InfrastructureFault("down", error_type="http_503")
    with session(ScriptedTarget(lambda p, c: fault), max_retries=2) as s:
        (evaluation,) = s.evaluate(assignment({"k": 1}, ["c0"]), 0).evaluations
        assert s.budget.spent.calls == 3
    assert (evaluation.status, evaluation.fault, evaluation.reward) == (
        "error",
        "infrastructure",
        None,
    )
    assert evaluation.attempt == 3
    assert evaluation.metrics == {}


def test_a_fault_that_cannot_heal_is_not_tried_again():
    fault = InfrastructureFault("no key", error_type="http_401", retryable=False)
    with session(ScriptedTarget(lambda p, c: fault), max_retries=5) as s:
        s.evaluate(assignment({"k": 1}, ["c0"]), 0)
        assert s.budget.spent.calls == 1


def test_a_call_that_heals_counts_with_its_last_attempt():
    seen: dict[str, int] = {}

    def flaky(params, case):
        seen[case.case_id] = seen.get(case.case_id, 0) + 1
        if seen[case.case_id] < 3:
            return InfrastructureFault("busy", error_type="http_429")
        return case.input["x"]

    journal = ScratchJournal()
    with session(ScriptedTarget(flaky), max_retries=3, journal=journal) as s:
        trial = s.evaluate(assignment({"k": 1}, ["c0", "c1"]), 0)
        assert s.budget.spent.calls == 6
    assert [(e.reward, e.attempt) for e in trial.evaluations] == [(1.0, 3), (1.0, 3)]
    assert sorted(str(row["state"]) for row in journal.ledger) == ["done"] * 2 + ["failed"] * 4


@pytest.mark.parametrize("kind", ["http_429", "http_498"])
@pytest.mark.parametrize(("retries", "waits"), [(0, 0), (0, 5), (1, 0), (1, 2), (3, 5)])
def test_a_call_that_is_always_throttled_ends_as_missing_after_the_attempts_that_are_documented(
    kind: str, retries: int, waits: int
):
    def answer(params, case):
        if case.case_id == "c1":
            return InfrastructureFault("busy", error_type=kind)
        return case.input["x"]

    journal = ScratchJournal()
    limits = ExecutionConfig(max_retries=retries, max_rate_limit_retries=waits)
    with session(
        ScriptedTarget(answer),
        max_retries=retries,
        max_rate_limit_retries=waits,
        journal=journal,
    ) as s:
        trial = s.evaluate(assignment({"k": 1}, ["c0", "c1", "c2"]), 0)
        assert s.budget.spent.calls == 2 + limits.most_attempts == len(journal.ledger)
    assert [e.reward for e in trial.evaluations] == [1.0, None, 1.0]
    assert (trial.evaluations[1].fault, trial.evaluations[1].attempt) == (
        "infrastructure",
        limits.most_attempts,
    )


def test_a_retry_that_the_budget_refuses_names_the_limit_and_the_fault():
    fault = InfrastructureFault("HTTP 500 from http://x", error_type="http_500")
    with session(ScriptedTarget(lambda p, c: fault), max_calls=2, max_retries=5) as s:
        trial = s.evaluate(assignment({"k": 1}, ["c0"]), 0)
        later = s.evaluate(assignment({"k": 2}, ["c0"]), 0)
    (evaluation,) = trial.evaluations
    assert (evaluation.fault, evaluation.reward) == ("infrastructure", None)
    told = limit_reached([trial])
    assert told is not None
    assert told.startswith("budget.max_calls=2 is spent: 2 calls, retries included.")
    assert told.endswith("after the last of its 2 attempts: HTTP 500 from http://x")
    assert [e.status for e in later.evaluations] == ["skipped"]


def test_what_answers_ask_one_call_to_wait_is_bounded_in_seconds_too():
    class Patient(Backoff):
        def delay_s(self, n_tries, retry_after_s, rng):
            return 0.0  # as if it had waited

    fault = InfrastructureFault("busy", error_type="http_429", retry_after_s=250.0)
    target = ScriptedTarget(lambda p, c: fault)
    with session(target, max_retries=9, max_rate_limit_retries=9, backoff=Patient()) as s:
        (evaluation,) = s.evaluate(assignment({"k": 1}, ["c0"]), 0).evaluations
    assert target.n_calls == 3  # 250 s and 500 s, but not 750 s
    assert evaluation.reward is None


def test_metric_that_raises_is_missing_with_its_traceback_kept():
    class Raises:
        name = "quality"

        async def measure(self, reply, case, params):
            raise EvaluatorFault(
                "metric: boom", error_type="ValueError", details="Traceback: boom"
            )

    with session(ScriptedTarget(right), metrics=[Raises()]) as s:
        (evaluation,) = s.evaluate(assignment({"k": 1}, ["c0"]), 0).evaluations
    assert (evaluation.fault, evaluation.reward, evaluation.status) == ("evaluator", None, "error")
    assert evaluation.error is not None
    assert "Traceback: boom" in evaluation.error


def test_a_metric_that_blames_the_answer_costs_half_of_two():
    def compare(result, expected):
        raise CandidateFault("not JSON", error_type="not_json")

    metrics: list[Metric] = [SuccessRate("success_rate"), Compared("quality", compare)]
    with session(ScriptedTarget(right), metrics=metrics) as s:
        (evaluation,) = s.evaluate(assignment({"k": 1}, ["c0"]), 0).evaluations
    assert (evaluation.fault, evaluation.reward) == ("candidate", 0.5)
    assert evaluation.metrics == {"success_rate": 1.0, "quality": 0.0}


@pytest.mark.parametrize(
    ("rule", "reward", "unread", "status"),
    [
        ({"weight": 0}, 1.0, {}, "ok"),
        ({"weight": 0.25}, 0.8, {"number": 0.0}, "error"),
        ({"weight": 0.25, "direction": "lower"}, 0.8, {"number": 1.0}, "error"),
        ({"weight": 0.25, "scale": {"good": 1, "bad": 9}}, 0.8, {"number": 9.0}, "error"),
        ({"weight": 0, "min": 1}, 0.0, {}, "error"),
    ],
)
def test_a_metric_that_cannot_read_an_answer_costs_its_own_share_alone(
    rule, reward, unread, status
):
    def compare(result, expected):
        raise CandidateFault("the answer is not a number", error_type="not_numeric")

    metrics: list[Metric] = [Compared("number", compare), equal_metric()]
    rules = {"number": metric(**rule), "quality": metric()}
    with session(ScriptedTarget(right), metrics=metrics, rules=rules) as s:
        (evaluation,) = s.evaluate(assignment({"k": 1}, ["c0"]), 0).evaluations
    assert evaluation.reward == pytest.approx(reward)
    assert evaluation.metrics == {"quality": 1.0, **unread}
    assert evaluation.status == status
    assert evaluation.fault == (None if status == "ok" else "candidate")
    assert evaluation.error_type == "not_numeric"
    assert evaluation.error == "the answer is not a number"


class Fixed:
    """A metric with one outcome; ``asked`` counts."""

    def __init__(self, name: str, outcome: float | Exception) -> None:
        self.name, self.outcome, self.asked = name, outcome, 0

    async def measure(self, reply: object, case: object, params: object) -> float:
        self.asked += 1
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class FixedJudge(Fixed):
    async def judge(
        self, reply: object, case: object, params: object, asker: object
    ) -> dict[str, float]:
        return {self.name: await self.measure(reply, case, params)}

    async def aclose(self) -> None:
        pass


UNREAD = CandidateFault("no field `label`", error_type="missing_field")
RAISED = EvaluatorFault("KeyError: 'label'", error_type="KeyError")
DOWN = InfrastructureFault("HTTP 503", error_type="http_503")
OF_BAD = {"scale": {"good": 0, "bad": 10}}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("rules", "outcomes", "expected"),
    [
        ({"a": {}, "b": {"weight": 0}}, (UNREAD, RAISED, 1.0), (0.5, "candidate", UNREAD)),
        ({"a": {}, "b": {}}, (UNREAD, RAISED, 1.0), (1 / 3, "candidate", UNREAD)),
        ({"a": {"weight": 0}, "b": {"weight": 0}}, (UNREAD, RAISED, 1.0), (1.0, None, UNREAD)),
        ({"a": {}, "b": {"min": 0.5}}, (UNREAD, RAISED, 1.0), (0.0, "candidate", RAISED)),
        (
            {"a": {}, "b": {"type": "exact_match"}},
            (UNREAD, RAISED, 1.0),
            (None, "evaluator", RAISED),
        ),
        ({"a": {}, "b": {}}, (1.0, RAISED, 1.0), (None, "evaluator", RAISED)),
        ({"a": {}, "b": {"weight": 0}}, (0.0, RAISED, 1.0), (0.5, None, RAISED)),
        ({"a": {"weight": 0}, "b": {}}, (UNREAD, RAISED, 1.0), (None, "evaluator", RAISED)),
        ({"a": {"weight": 0}, "b": {}}, (DOWN, 0.0, 1.0), (0.5, None, DOWN)),
        ({"a": {}, "b": {}, "c": {"weight": 0}}, (1.0, 0.0, DOWN), (0.5, None, DOWN)),
        ({"a": {}, "b": {"weight": 0, "max": 1}}, (1.0, RAISED, 1.0), (None, "evaluator", RAISED)),
        ({"a": {}, "b": {}}, (UNREAD, 1.0, DOWN), (None, "infrastructure", DOWN)),
        ({"a": {"max": 5, **OF_BAD}, "b": {}}, (UNREAD, 1.0, 1.0), (0.0, "candidate", UNREAD)),
        ({"a": {"max": 50, **OF_BAD}, "b": {}}, (UNREAD, 1.0, DOWN), (0.0, "candidate", UNREAD)),
        (
            {"a": {"weight": 0, "min": 1}, "b": {}},
            (UNREAD, RAISED, DOWN),
            (0.0, "candidate", UNREAD),
        ),
    ],
)
def test_an_answer_that_one_metric_cannot_read_is_why_a_function_raises(
    order, rules, outcomes, expected
):
    (a, b, c), (reward, fault, error) = outcomes, expected
    judge = FixedJudge("c", c)
    metrics = [Fixed("a", a), Fixed("b", b), judge][::order]
    every = {name: metric(**rule) for name, rule in {"c": {}, **rules}.items()}
    with session(ScriptedTarget(right), metrics=metrics, rules=every) as s:
        (evaluation,) = s.evaluate(assignment({"k": 1}, ["c0"]), 0).evaluations
    assert (evaluation.reward, evaluation.fault) == (
        None if reward is None else pytest.approx(reward),
        fault,
    )
    assert (evaluation.error, evaluation.error_type) == (str(error), error.error_type)
    assert judge.asked == (reward != 0.0 and fault != "evaluator")


def test_metric_that_is_nan_is_missing_and_never_one():
    metric = Compared("quality", lambda result, expected: float("nan"))
    with session(ScriptedTarget(right), metrics=[metric]) as s:
        (evaluation,) = s.evaluate(assignment({"k": 1}, ["c0"]), 0).evaluations
    assert (evaluation.fault, evaluation.error_type, evaluation.reward) == (
        "evaluator",
        "not_finite",
        None,
    )


def test_broken_constraint_is_reward_zero_of_an_answer_that_is_well():
    rules = {"quality": metric(max=0.5)}
    with session(ScriptedTarget(right), rules=rules) as s:
        (evaluation,) = s.evaluate(assignment({"k": 1}, ["c0"]), 0).evaluations
    assert (evaluation.status, evaluation.fault, evaluation.reward) == ("ok", "candidate", 0.0)
    assert evaluation.error_type == "constraint"


def test_parameters_that_make_no_request_are_not_asked():
    class Refuses(ScriptedTarget):
        def request(self, params, case):
            raise CandidateFault("no model", error_type="no_model")

    target = Refuses(right)
    with session(target) as s:
        trial = s.evaluate(assignment({"k": 1}, ["c0", "c1"]), 0)
    assert target.n_calls == 0
    assert [(e.reward, e.call_key, e.attempt) for e in trial.evaluations] == [(0.0, None, 0)] * 2


def test_cells_are_asked_in_order_of_arrival():
    order: list[str] = []

    def note(params, case):
        order.append(case.case_id)
        return 0

    with session(ScriptedTarget(note), workers=1) as s:
        s.evaluate(assignment({"k": 1}, ["c5", "c1", "c3"]), 0)
        s.evaluate(assignment({"k": 2}, ["c2", "c0"]), 0)
    assert order == ["c5", "c1", "c3", "c2", "c0"]


def test_budget_skips_what_it_does_not_cover_and_says_so():
    target = ScriptedTarget(right)
    with session(target, max_calls=3, workers=4) as s:
        trial = s.evaluate(assignment({"k": 1}, [f"c{i}" for i in range(8)]), 0)
        assert s.budget.spent.calls == 3
    statuses = [e.status for e in trial.evaluations]
    assert statuses.count("ok") == 3
    skipped = [e for e in trial.evaluations if e.status == "skipped"]
    assert {e.error_type for e in skipped} == {"budget"}
    assert {(e.reward, e.fault) for e in skipped} == {(None, None)}
    assert target.n_calls == 3


def test_stop_skips_what_was_not_asked_and_keeps_what_was():
    released = threading.Event()
    asked = threading.Event()

    def wait(case_input, params):
        asked.set()
        released.wait(20)
        return case_input["x"]

    with session(function_target(wait, workers=1), workers=1) as s:
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(s.evaluate, assignment({"k": 1}, ["c0", "c1", "c2"]), 0)
            assert asked.wait(20)
            s.stop()
            released.set()
            trial = future.result()
        later = s.evaluate(assignment({"k": 2}, ["c0"]), 0)
    assert [e.status for e in trial.evaluations] == ["ok", "skipped", "skipped"]
    assert trial.evaluations[1].error_type == "stopped"
    assert [e.status for e in later.evaluations] == ["skipped"]


def test_stop_ends_a_pause_before_a_retry():
    paused = threading.Event()

    def busy(params, case):
        paused.set()
        return InfrastructureFault("busy", error_type="http_429", retry_after_s=500.0)

    with (
        session(ScriptedTarget(busy), max_retries=3, backoff=Backoff()) as s,
        ThreadPoolExecutor(1) as pool,
    ):
        future = pool.submit(s.evaluate, assignment({"k": 1}, ["c0"]), 0)
        assert paused.wait(20)
        s.stop()
        (evaluation,) = future.result(timeout=30).evaluations
    assert (evaluation.fault, evaluation.error_type) == ("infrastructure", "http_429")


def test_close_gives_up_calls_in_flight_and_leaves_them_as_maybe_paid():
    asked = threading.Event()

    async def hang() -> None:
        asked.set()
        await asyncio.sleep(3600)

    journal = ScratchJournal()
    with ThreadPoolExecutor(1) as pool:
        with session(ScriptedTarget(lambda p, c: hang()), journal=journal) as s:
            future = pool.submit(s.evaluate, assignment({"k": 1}, ["c0"]), 0)
            assert asked.wait(20)
        (evaluation,) = future.result().evaluations
    assert evaluation.status == "skipped"
    assert journal.totals("run-1").n_in_flight == 1


def test_missing_variable_ends_the_evaluation_and_its_attempt_is_settled():
    problem = Problem(key="api.auth.token_env", rule="needs KEY", value="", fix="Set it.")
    journal = ScratchJournal()
    with (
        session(ScriptedTarget(lambda p, c: ConfigurationError([problem])), journal=journal) as s,
        pytest.raises(ConfigurationError, match="needs KEY"),
    ):
        s.evaluate(assignment({"k": 1}, ["c0"]), 0)
    assert journal.totals("run-1").n_in_flight == 0


def test_listener_hears_each_cell_once_and_one_at_a_time():
    heard: list[str] = []
    inside = threading.Lock()

    def listen(evaluation):
        assert inside.acquire(blocking=False)
        heard.append(evaluation.eval_id)
        inside.release()

    with (
        session(ScriptedTarget(right), n_cases=30, on_cell=listen) as s,
        ThreadPoolExecutor(3) as pool,
    ):
        plans = [assignment({"k": k}, [f"c{i}" for i in range(30)]) for k in range(3)]
        trials = list(pool.map(lambda plan: s.evaluate(plan, 0), plans))
    assert sorted(heard) == sorted(e.eval_id for trial in trials for e in trial.evaluations)


def test_error_of_the_listener_reaches_the_caller():
    def listen(evaluation):
        raise ZeroDivisionError

    with session(ScriptedTarget(right), on_cell=listen) as s, pytest.raises(ZeroDivisionError):
        s.evaluate(assignment({"k": 1}, ["c0"]), 0)
