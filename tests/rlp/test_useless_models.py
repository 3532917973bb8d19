"""Runs whose models are of no use or cost too much: the run goes on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convergence_core.errors import EvaluatorFault
from convergence_core.events import ThinkingStopped
from convergence_core.ports import WorstCase
from tasks.calls.model_calls import THOUGHT
from tasks.inputs.loader import load_mapping
from tasks.mock.mock_server import MockServer
from tasks.rlp.factory import NO_LLM
from tasks.rlp.learner_calls import SubBudget, spent_on
from tasks.run.opener import prepare_run
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.configurations import chat_api, mapping
from tests.support.http_server import Answer, Request
from tests.support.stepped_runs import begin, play
from tests.support.thinking_server import Kind, ThinkingWorld
from tests.support.thoughtful_runs import SETTING, rows, run_whole, truth, write_thoughtful


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    write_thoughtful(folder, None, society={"enabled": False})
    play(begin(folder))
    return folder


@pytest.mark.parametrize(
    ("kind", "reason", "n"),
    [
        ("foreign", "unreadable: it holds no JSON object", 2),
        pytest.param("refusing", "refused (refusal)", 1, marks=pytest.mark.slow),
        pytest.param("silent", "unreadable: it is empty", 2, marks=pytest.mark.slow),
        pytest.param("failing", "failed (http_500)", 1, marks=pytest.mark.slow),
    ],
)
def test_a_model_without_a_thought_changes_nothing_but_a_recorded_reason(
    tmp_path: Path, plain: Path, kind: Kind, reason: str, n: int
):
    world = ThinkingWorld(truth, kind)
    run_whole(
        tmp_path,
        world,
        optimization__execution={
            "parallel_workers": 4,
            "max_retries": 0,
            "early_stopping": {"enabled": False},
        },
    )
    found = rows(tmp_path, "select * from thoughts order by generation")
    # No failure ends thoughts for the run: each generation asks again.
    assert [row["generation"] for row in found] == [0, 1, 2, 3]
    assert world.n_asked["thought"] == 4 * n
    for row in found:
        assert row["reason"].startswith(reason), row["reason"]
        assert row["information_gain"] is None
    assert rows(tmp_path, "select * from predictions") == []
    order = "select * exclude (run_id) from candidates order by all"
    assert rows(tmp_path, order) == rows(plain, order)


def test_a_reply_that_is_readable_the_second_time_is_one_thought(tmp_path: Path):
    world = ThinkingWorld(truth, "hesitant")
    run_whole(tmp_path, world, optimization__evolution={"population_size": 8, "generations": 2})
    found = rows(tmp_path, "select * from thoughts where generation > 0")
    assert len(found) == 1
    assert world.n_asked["thought"] == 2 * 2
    assert all(row["reason"] is None and row["information_gain"] is not None for row in found)


@pytest.mark.slow
def test_strange_replies_have_no_effect_but_a_recorded_reason(tmp_path: Path, plain: Path):
    run_whole(tmp_path, ThinkingWorld(truth, "rogue"))
    found = rows(tmp_path, "select * from thoughts where generation > 0")
    assert found
    for row in found:
        assert row["reason"].startswith("unreadable: ")
        assert "a forecast must be three numbers" in row["reason"]
    order = "select * exclude (run_id) from candidates order by all"
    assert rows(tmp_path, order) == rows(plain, order)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["random", "evolution"])
def test_where_no_place_can_be_advised_nobody_is_asked(tmp_path: Path, algorithm: str):
    world = ThinkingWorld(truth, "good")
    run_whole(tmp_path, world, optimization__algorithm=algorithm)
    assert world.n_asked == {}
    assert rows(tmp_path, "select * from thoughts") == []


@pytest.mark.parametrize(
    "model", ["openai/thinker", pytest.param("anthropic/thinker", marks=pytest.mark.slow)]
)
def test_offline_the_stand_in_thinks_and_judges_and_nobody_is_paid(tmp_path: Path, model: str):
    cases = [
        {"id": f"c{i}", "input": {"q": f"What is {i} plus {i}?"}, "expected": str(2 * i)}
        for i in range(5)
    ]
    tree = mapping(
        api=chat_api("http://127.0.0.1:9"),
        search_space__parameters={"temperature": {"type": "float", "min": 0, "max": 1.5}},
        evaluation__test_cases=cases,
        optimization__evolution={"population_size": 4, "generations": 2},
        society={"enabled": True},
        evaluation__metrics={
            "quality": {"type": "llm_judge", "rubric": "Is it right?", "weight": 1}
        },
        llm={"model": model, "api_key_env": "NO_SUCH_KEY"},
    )
    tree["storage"] = {"path": "store"}
    with MockServer() as server:
        result = play(prepare_run(load_mapping(tree, tmp_path), mock_url=server.url))
    assert result.thinking is not None
    assert result.thinking.n_thoughts > 0
    asked = "select distinct provider from attempts where purpose <> 'evaluation'"
    found = ParquetStore(tmp_path / "store").rows(asked)
    assert found == [{"provider": model.partition("/")[0]}]


class DearWorld(ThinkingWorld):
    """Answers with long usage: at the price below about a dollar a call."""

    def answer(self, request: Request) -> Answer:
        found = super().answer(request)
        usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
        return replace(found, body={**found.body, "usage": usage})


@pytest.mark.slow
def test_thoughts_end_with_their_share_and_the_run_goes_on(tmp_path: Path):
    run_whole(
        tmp_path,
        DearWorld(truth, "good", SETTING),
        prices={"thinker": {"input": 1000.0, "output": 1000.0}, "function": {"request": 0.0}},
        budget={"max_usd": 200.0},
        society={"enabled": True, "rlp": {"max_share_usd": 0.02}},
    )
    paid = rows(
        tmp_path,
        "select coalesce(sum(cost_usd), 0) as usd from attempts where purpose = 'thought'",
    )
    assert 0 < paid[0]["usd"] <= 200.0 * 0.02
    found = rows(tmp_path, "select * from thoughts")
    refused = [row for row in found if "society.rlp.max_share_usd" in (row["reason"] or "")]
    assert refused
    assert len(refused) < len(found)
    last = rows(tmp_path, "select max(generation) as g, count(*) as n from evaluations")
    assert last[0]["g"] == 3


def test_without_a_model_the_run_says_so_once_and_goes_on(tmp_path: Path, plain: Path):
    write_thoughtful(tmp_path, None)
    events: list[Any] = []
    play(begin(tmp_path, on_event=events.append))
    assert [e.text for e in events if isinstance(e, ThinkingStopped)] == [NO_LLM]
    order = "select * exclude (run_id) from candidates order by all"
    assert rows(tmp_path, order) == rows(plain, order)


def test_a_sub_budget_refuses_a_call_that_might_exceed_it():
    budget = SubBudget(limit_usd=1.0)
    first = budget.reserve(WorstCase(usd=0.8))
    with pytest.raises(EvaluatorFault, match="max_share_usd"):
        budget.reserve(WorstCase(usd=0.3))
    budget.settle(first, 0.1)
    second = budget.reserve(WorstCase(usd=0.3))
    budget.settle(second, None)
    assert budget.spent_usd == pytest.approx(0.4)
    assert SubBudget(limit_usd=None).reserve(WorstCase(usd=1e9)) == 1e9


def test_only_thoughts_of_committed_generations_were_spent():
    attempts: list[dict[str, Any]] = [
        {"purpose": "thought", "generation": 0, "cost_usd": 0.1, "maybe_usd": None},
        {"purpose": "thought", "generation": 1, "cost_usd": None, "maybe_usd": 0.2},
        {"purpose": "thought", "generation": 2, "cost_usd": 5.0, "maybe_usd": None},
        {"purpose": "evaluation", "generation": 0, "cost_usd": 7.0, "maybe_usd": None},
        {"purpose": "thought", "generation": None, "cost_usd": 9.0, "maybe_usd": None},
    ]
    assert spent_on((THOUGHT,), attempts, 2) == pytest.approx(0.3)
