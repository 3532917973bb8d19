"""Whatever the schedule, a run never makes more calls than its budget allows."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from convergence_core.errors import CandidateFault, InfrastructureFault
from convergence_core.records import Trial
from tests.support.memory_journal import MemoryJournal
from tests.support.sessions import ScriptedTarget, assignment, session


def answer_by(rng) -> Any:
    async def answer(params, case):
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        luck = rng.random()
        if luck < 0.3:
            return InfrastructureFault("busy", error_type="http_429", retryable=luck < 0.25)
        if luck < 0.4:
            return CandidateFault("bad", error_type="http_400")
        return case.input["x"]

    return answer


@pytest.mark.parametrize("seed", range(60))
def test_no_schedule_of_parallel_calls_and_retries_overshoots(seed):
    rng = random.Random(seed)
    max_calls = rng.randrange(1, 30)
    journal = MemoryJournal()
    target = ScriptedTarget(answer_by(rng))
    n_used = 0
    trials: list[Trial] = []
    plans = [
        assignment(
            {"k": rng.randrange(3)}, [f"c{rng.randrange(8)}" for _ in range(rng.randrange(1, 8))]
        )
        for _ in range(rng.randrange(1, 6))
    ]
    for _ in range(rng.randrange(1, 3)):  # a resumed run goes on with the same counters
        with (
            session(
                target,
                journal=journal,
                max_calls=max_calls,
                calls_used=n_used,
                workers=rng.randrange(1, 9),
                max_retries=rng.randrange(4),
            ) as s,
            ThreadPoolExecutor(len(plans)) as pool,
        ):
            trials = list(pool.map(lambda plan: s.evaluate(plan, 0), plans))
            n_used = s.calls_used
    assert target.n_calls == n_used == len(journal.ledger) <= max_calls
    evaluations = [e for trial in trials for e in trial.evaluations]
    assert len(evaluations) == sum(len(plan.cells) for plan in plans)
    skipped = [e for e in evaluations if e.status == "skipped"]
    assert all(e.error_type == "budget" for e in skipped)
    if skipped:  # nothing is skipped while a call is left
        assert n_used == max_calls
