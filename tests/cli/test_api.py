"""``run_optimization`` and ``run_optimization_sync``: whole runs from Python."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from convergence import OptimizationResult, run_optimization, run_optimization_sync
from convergence.types import Event, GenerationFinished, RunStarted
from convergence_core.errors import ConfigurationError
from convergence_core.result.verdict import verdict_of
from tasks.store.tables.parquet_store import ParquetStore

SPACE = {"parameters": {"x": {"type": "float", "min": 0.0, "max": 1.0, "default": 0.1}}}
CASES = [{"id": f"c{n}", "input": {"n": n}, "expected": 0.6} for n in range(6)]


def config(generations: int = 2) -> dict[str, Any]:
    return {
        "api": {"name": "bot"},
        "search_space": SPACE,
        "evaluation": {"metrics": {"near": {"type": "function"}}},
        "optimization": {
            "evolution": {"population_size": 4, "generations": generations, "elite_size": 1},
            "execution": {"parallel_workers": 2, "early_stopping": {"enabled": False}},
        },
        "output": {"formats": ["json"]},
    }


def target(n: int, x: float) -> float:
    return x


def near(result: float, expected: float, params: object, metric: str) -> float:
    return 1 - abs(result - expected)


def near_too(
    prediction: dict[str, Any], expected: float, *, context: dict[str, Any]
) -> dict[str, float]:
    return {"near": 1 - abs(prediction["result"] - expected)}


GIVEN: dict[str, Any] = {"local_function": target, "evaluator": near, "test_cases": CASES}


@pytest.mark.prefect
@pytest.mark.parametrize(
    "evaluator",
    [
        pytest.param(near, id="first form"),
        pytest.param(near_too, id="second form", marks=pytest.mark.slow),
    ],
)
def test_mapping_with_callables_runs(evaluator: Any, here: Path):
    result = run_optimization_sync(
        config(), local_function=target, evaluator=evaluator, test_cases=CASES
    )
    assert isinstance(result, OptimizationResult)
    assert result.success
    assert result.error is None
    assert set(result.best_config) == {"x"}
    assert 0 < result.best_score <= 1
    assert result.generations_run == 2
    assert result.configs_generated == result.result.n_candidates
    assert result.optimization_run_id == result.result.run_id
    assert result["best_config"] == result.best_config
    with pytest.raises(KeyError):
        result["best"]


@pytest.mark.prefect
@pytest.mark.parametrize(
    "wrong", [None, pytest.param(5, marks=pytest.mark.slow)], ids=["perfect", "all but one"]
)
def test_perfect_defaults_end_a_run_before_anything_else_is_evaluated(
    wrong: int | None, here: Path
):
    asked: list[float] = []

    def recorded(n: int, x: float) -> float:
        asked.append(x)
        return 0.0 if n == wrong else x

    settings = config(2)
    settings["optimization"]["execution"]["early_stopping"]["enabled"] = True
    x = {"type": "float", "min": 0.0, "max": 1.0, "default": 0.6}
    settings["search_space"] = {"parameters": {"x": x}}
    result = run_optimization_sync(
        settings, local_function=recorded, evaluator=near, test_cases=CASES
    ).result
    others = [value for value in asked if value != 0.6]
    if wrong is not None:
        assert others
        return
    assert not others
    assert len(asked) <= 2 * len(CASES)  # searched, and asked again in the final test
    verdict = verdict_of(result)
    assert (verdict.kind, result.status) == ("same", "done")
    n = result.n_search_cases
    assert verdict.sentence == (
        f"The defaults have the highest score on all {n} search cases; these cases can "
        "show no gain."
    )
    assert verdict.next_step.startswith("Add harder test cases")


@pytest.mark.prefect
def test_overrides_and_events_arrive(here: Path):
    seen: list[Event] = []
    result = run_optimization_sync(
        config(5), **GIVEN,
        on_event=seen.append, seed=9, generations=1, max_calls=1000,
    )  # fmt: skip
    assert result.result.seed == 9
    assert isinstance(seen[0], RunStarted)
    assert sum(isinstance(event, GenerationFinished) for event in seen) == 1
    assert [event["event"] for event in result.events][:2] == ["RunStarted", "GenerationStarted"]
    assert "CellEvaluated" not in {event["event"] for event in result.events}


@pytest.mark.prefect
@pytest.mark.slow
def test_cancelling_ends_the_run_cleanly_and_resume_goes_on(here: Path):
    started, let_go = threading.Event(), threading.Event()

    def held(n: int, x: float) -> float:
        started.set()
        let_go.wait(120)
        return x

    async def main() -> None:
        run = asyncio.ensure_future(
            run_optimization(config(), local_function=held, evaluator=near, test_cases=CASES)
        )
        while not started.is_set():
            await asyncio.sleep(0.01)
        run.cancel()
        await asyncio.sleep(0.05)
        assert not run.done()  # a call is in flight and is waited for
        let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(main())
    (record,) = ParquetStore(here / "convergence-data").runs()
    assert record.status == "stopped"
    result = run_optimization_sync(
        config(), local_function=held, evaluator=near, test_cases=CASES, resume=record.label
    )
    assert result.optimization_run_id == record.run_id
    assert result.success


@pytest.mark.prefect
def test_listener_that_raises_ends_the_run_and_is_heard(here: Path):
    def complain(event: Event) -> None:
        if isinstance(event, GenerationFinished):
            raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        run_optimization_sync(config(50), **GIVEN, on_event=complain)
    (record,) = ParquetStore(here / "convergence-data").runs()
    assert record.status == "stopped"


def test_wrong_configuration_raises_before_anything_is_written(here: Path):
    with pytest.raises(ConfigurationError):
        run_optimization_sync({"api": {"name": "bot"}})
    assert list(here.iterdir()) == []


def test_overrides_of_a_resumed_run_are_refused(here: Path):
    with pytest.raises(ConfigurationError, match="seed"):
        run_optimization_sync(config(), **GIVEN, resume="x", seed=3)
