"""Short ways to make sessions, targets and assignments in tests."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from convergence_core.budget.limits import Budget, Spent
from convergence_core.config import CacheConfig
from convergence_core.config.evaluation import BaseMetric
from convergence_core.config.models import BudgetConfig
from convergence_core.objective import RewardModel
from convergence_core.ports import Metric, Target, WorstCase
from convergence_core.records import (
    Assignment,
    Candidate,
    Case,
    Cell,
    Evaluation,
    Json,
    Params,
    Reply,
    canonical_json,
    sha256_hex,
)
from tasks.calls.dispatcher import Workload
from tasks.calls.metric_calls import PaidMetric
from tasks.calls.paid_calls import CallLimits
from tasks.calls.pending_calls import RunContext
from tasks.calls.session import EvaluationSession
from tasks.functions.call_forms import call_form
from tasks.http.retries import Backoff
from tasks.metrics.metrics import Compared
from tasks.store.journal.sql_journal import Journal
from tasks.targets.function import FunctionTarget
from tests.support.scratch_journal import ScratchJournal
from tests.support.single_metrics import metric

QUICK = Backoff(base_s=0.001, cap_s=0.002)


def cases(n: int) -> dict[str, Case]:
    return {f"c{i}": Case(case_id=f"c{i}", input={"x": i}, expected=i) for i in range(n)}


def candidate(**params: Any) -> Candidate:
    return Candidate(candidate_id=sha256_hex(canonical_json(params))[:16], params=params)


def right(params: Params, case: Case) -> Json:
    """Answer what the cases of ``cases`` expect."""
    assert isinstance(case.input, dict)
    return case.input["x"]


def assignment(
    params: Mapping[str, Any], case_ids: Sequence[str], *, repeats: int = 1, role: Any = "search"
) -> Assignment:
    who = candidate(**params)
    return Assignment(
        candidate=who,
        cells=tuple(
            Cell(candidate_id=who.candidate_id, case_id=case_id, repeat=repeat, role=role)
            for case_id in case_ids
            for repeat in range(repeats)
        ),
    )


def function_target(
    function: Callable[..., Any],
    *,
    workers: int = 4,
    timeout_s: float = 30.0,
    **more: Any,
) -> FunctionTarget:
    form = call_form(function, {"k"}, {"x"}, key="api.function")
    target: dict[str, Any] = {"form": form, "function": function, "workers": workers, **more}
    return FunctionTarget(name="f", timeout_s=timeout_s, **target)


CASE = Case(case_id="c", input={"x": 3}, expected=3)


def ask_function(
    function: Callable[..., Any],
    *,
    case: Case = CASE,
    params: Params | None = None,
    **settings: Any,
) -> Reply:
    """Ask a function once, as a target of its own."""

    async def go() -> Reply:
        target = function_target(function, **settings)
        try:
            return await target.call({"k": 2} if params is None else params, case)
        finally:
            await target.aclose()

    return asyncio.run(go())


def equal_metric(name: str = "quality") -> Compared:
    """1 where the answer equals what the case expects."""
    return Compared(name, lambda result, expected: float(result == expected))


class ScriptedTarget:
    """A target whose answers are written by the test: values, faults, or coroutines of them."""

    provider = "scripted"

    def __init__(
        self, answer: Callable[[Params, Case], Any], *, worst: WorstCase | None = None
    ) -> None:
        self._answer = answer
        self.worst = worst or WorstCase()
        self.n_calls = 0
        self.n_in_flight = 0
        self.most_in_flight = 0
        self.closed = False

    def request(self, params: Params, case: Case) -> Json:
        return {"params": dict(params), "input": case.input}

    def worst_case(self, params: Params, case: Case) -> WorstCase:
        return self.worst

    async def call(self, params: Params, case: Case) -> Reply:
        self.n_calls += 1
        self.n_in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.n_in_flight)
        try:
            found = self._answer(params, case)
            if asyncio.iscoroutine(found):
                found = await found
        finally:
            self.n_in_flight -= 1
        if isinstance(found, BaseException):
            raise found
        if isinstance(found, Reply):
            return found
        return Reply(value=found, latency_ms=1.0, provider=self.provider)

    async def aclose(self) -> None:
        self.closed = True


@contextmanager
def session(
    target: Target,
    *,
    n_cases: int = 8,
    metrics: Sequence[Metric | PaidMetric] | None = None,
    rules: Mapping[str, BaseMetric] | None = None,
    journal: Journal | None = None,
    workers: int = 4,
    max_retries: int = 0,
    max_rate_limit_retries: int = 5,
    timeout_s: float = 30.0,
    max_calls: int | None = None,
    calls_used: int = 0,
    budget: Budget | None = None,
    cache: CacheConfig | None = None,
    run_started_us: int = 0,
    judge_workers: int = 2,
    run_id: str = "run-1",
    redact: Callable[[str], str] = str,
    keep_text: bool = True,
    on_cell: Callable[[Evaluation], None] | None = None,
    backoff: Backoff = QUICK,
    known_cases: Mapping[str, Case] | None = None,
    now_us: Callable[[], int] | None = None,
):
    metrics = [equal_metric()] if metrics is None else metrics
    rules = {measured.name: metric() for measured in metrics} if rules is None else rules
    made = EvaluationSession(
        context=RunContext(
            run_id=run_id,
            cache=cache or CacheConfig(),
            payer=(run_id, run_started_us),
            redact=redact,
            keep_text=keep_text,
        ),
        workload=Workload(
            target=target,
            timeout_s=timeout_s,
            metrics=metrics,
            rewards=RewardModel(rules),
            cases=cases(n_cases) if known_cases is None else known_cases,
        ),
        limits=CallLimits(
            workers=workers,
            judge_workers=judge_workers,
            max_retries=max_retries,
            max_rate_limit_retries=max_rate_limit_retries,
            backoff=backoff,
        ),
        journal=ScratchJournal() if journal is None else journal,
        budget=budget
        or Budget(BudgetConfig(max_calls=max_calls), Spent(calls=calls_used), threading.Lock()),
        on_cell=on_cell,
        now_us=now_us,
    )
    try:
        yield made
    finally:
        made.close()
