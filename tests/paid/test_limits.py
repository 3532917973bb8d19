"""Small budgets of every kind against a faulty server: no cap is passed, and each end is told."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convergence.cli.optimize import exit_code_of
from convergence.cost_estimate import RoleEstimate, estimate
from convergence_core.result import RunResult
from tasks.inputs.loader import load
from tasks.mock.mock_server import MockServer
from tasks.mock.options import MockOptions
from tasks.store.tables.parquet_store import ParquetStore
from tests.paid import books
from tests.support.paid_kinds import short_pauses
from tests.support.paid_runs import STORE, begin, play, write_project

ALWAYS = (0, 3, 8, 12, 19)


@pytest.fixture(autouse=True)
def _short_pauses() -> Iterator[None]:
    with short_pauses():
        yield


def drawn(seed: int) -> tuple[dict[str, Any], MockOptions]:
    """Return random limits of a small run, and the faults of the server that it asks."""
    rng = random.Random(seed)
    budget: dict[str, float] = {}
    kinds = rng.sample(["max_calls", "max_usd", "max_tokens"], rng.choice([1, 1, 2, 3]))
    if "max_calls" in kinds:
        budget["max_calls"] = rng.randrange(1, 70)
    if "max_usd" in kinds:
        budget["max_usd"] = 10 ** rng.uniform(-5, -1.5)
    if "max_tokens" in kinds:
        budget["max_tokens"] = rng.randrange(10, 6000)
    settings = {
        "budget": budget,
        "optimization__seed": seed,
        "optimization__evolution": {
            "population_size": rng.randrange(2, 4),
            "generations": rng.randrange(1, 4),
            "elite_size": 1,
        },
        "optimization__execution": {
            "parallel_workers": rng.choice([1, 3, 8]),
            "max_retries": rng.choice([0, 1, 3]),
            "max_rate_limit_retries": rng.choice([0, 1, 4]),
            "early_stopping": {"enabled": rng.random() < 0.3},
        },
        "evaluation__cases_per_candidate": rng.choice([2, 5]),
    }
    minutes, repeats = rng.choice([None, None, 0.005]), rng.choice([1, 1, 2])
    holdout, n_judges = rng.choice([0.0, 0.2, 0.5]), rng.choice([0, 0, 1, 2])
    if minutes is not None:
        budget["max_minutes"] = minutes
    settings["evaluation__repeats"] = repeats
    settings["evaluation__test_cases__holdout"] = holdout
    for judge in range(n_judges):
        settings[f"evaluation__metrics__judge{judge}"] = {
            "type": "llm_judge",
            "rubric": f"Is it right? {judge}",
            "votes": rng.choice([1, 3]),
            "weight": 1,
        }
    faults = MockOptions(
        seed=seed,
        rate_429=rng.choice([0.0, 0.2, 0.5]),
        rate_500=rng.choice([0.0, 0.2, 0.45]),
        retry_after_s=0.001,
    )
    return settings, faults


def check_estimate(most: RoleEstimate, rows: books.Rows, n_tries: int) -> None:
    """What was told before the run as the most that it takes, retries apart, is what it took at most."""
    firsts = {(row["eval_id"], row["call_key"]) for row in rows}
    answered = [row for row in rows if row["state"] == "done"]
    tokens = sum((row["tokens_in"] or 0) + (row["tokens_out"] or 0) for row in answered)
    usd = sum(row["cost_usd"] or 0.0 for row in answered)
    used = {"calls": len(firsts), "tokens": tokens, "usd": usd}
    told = {"calls": most.calls.high, "tokens": most.tokens.high, "usd": most.usd.high}
    for name, bound in told.items():
        assert bound is not None, name
        assert used[name] <= bound * (1 + 1e-12), (name, used, told)
    assert len(rows) <= (told["calls"] or 0) * n_tries


def check(tmp_path: Path, seed: int, **more: Any) -> RunResult:
    settings, faults = drawn(seed)
    settings |= more
    with MockServer(faults) as server:
        if "evaluation__metrics__judge0" in settings:
            endpoint = f"{server.url}/v1"
            settings["llm"] = {"model": "swift-1", "endpoint": endpoint, "temperature": 0.7}
        path = write_project(tmp_path, server.url, **settings)
        most = estimate(load(path)).total
        result = play(begin(tmp_path))
        stats = server.stats()
    rows = [row for row in books.ledger(tmp_path) if row["state"] != "cached"]
    budget = settings["budget"]
    assert stats["calls"] == len(rows) == result.n_calls, "each request stands in the ledger"
    assert len(rows) <= budget.get("max_calls", len(rows))
    usd = sum(row["cost_usd"] or 0.0 for row in rows) + sum(
        row["maybe_usd"] or 0.0 for row in rows
    )
    assert usd <= budget.get("max_usd", usd) * (1 + 1e-12)
    tokens = sum((row["tokens_in"] or 0) + (row["tokens_out"] or 0) for row in rows)
    assert tokens <= budget.get("max_tokens", tokens)

    execution = settings["optimization__execution"]
    n_tries = 1
    if execution["max_retries"]:
        n_tries += execution["max_retries"] + execution["max_rate_limit_retries"]
    attempts = Counter((row["eval_id"], row["call_key"]) for row in rows)
    assert max(attempts.values(), default=0) <= n_tries
    check_estimate(most, rows, n_tries)

    found = ParquetStore(tmp_path / STORE).rows(
        "select fault, error_type, reward from evaluations where coalesce(error_type, '') <> ''"
    )
    assert all(row["reward"] is None for row in found if row["fault"] == "infrastructure")
    was_cut = any(row["error_type"] == "budget" for row in found)
    if was_cut:
        assert result.status == "budget"
    if result.status == "budget":
        assert "budget.max_" in result.reason
        assert exit_code_of(result) == 3
    else:
        assert exit_code_of(result) == (1 if result.winner is None else 0)
    return result


@pytest.mark.parametrize("seed", ALWAYS)
def test_no_small_budget_is_passed_and_whoever_was_cut_short_says_so(tmp_path: Path, seed: int):
    check(tmp_path, seed)


SMALL: dict[str, Any] = {"population_size": 2, "generations": 2, "elite_size": 1}
FEW = {"evaluation__cases_per_candidate": 2, "optimization__evolution": SMALL}
IMPATIENT = {"enabled": True, "patience": 1, "min_improvement": 1.0}
DOWN = MockOptions(rate_500=1.0)

ENDS: dict[str, tuple[dict[str, Any], MockOptions, int, str]] = {
    "calls": ({"budget": {"max_calls": 8}}, MockOptions(), 3, "budget.max_calls=8 is spent"),
    "calls of retries": ({"budget": {"max_calls": 7}}, DOWN, 3, "budget.max_calls=7"),
    "dollars": ({"budget": {"max_usd": 0.0002}}, MockOptions(), 3, "budget.max_usd=0.0002"),
    "tokens": ({"budget": {"max_tokens": 500}}, MockOptions(), 3, "budget.max_tokens=500"),
    "minutes": ({"budget": {"max_minutes": 1e-6}}, MockOptions(), 3, "budget.max_minutes"),
    "early": ({"optimization__evolution": {**SMALL, "generations": 9},
               "optimization__execution": {"early_stopping": IMPATIENT}},
              MockOptions(), 0, "early stopping: "),
    "generations": ({}, MockOptions(), 0, "all 2 generations were run"),
    "a whole budget": ({"budget": {"max_calls": 500}}, MockOptions(), 0, "all 2 generations"),
    "faults": ({"optimization__execution": {"max_retries": 0}},
               MockOptions(rate_invalid=1.0), 1, "none of 4 evaluations has a reward"),
}  # fmt: skip
"""Name → settings, the server's faults, the documented exit code, and what the reason says."""


@pytest.mark.parametrize("name", ENDS)
def test_each_end_of_a_run_has_the_exit_code_that_is_documented(tmp_path: Path, name: str):
    settings, faults, code, reason = ENDS[name]
    with MockServer(faults) as server:
        write_project(tmp_path, server.url, **{**FEW, **settings})
        result = play(begin(tmp_path))
    assert (exit_code_of(result), reason in result.reason) == (code, True), result.reason
    assert result.n_calls <= settings.get("budget", {}).get("max_calls", result.n_calls)
