"""``estimate`` and ``optimize --dry-run``: what a run would cost, without calling anything."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from convergence_core.ports import Row
from tasks.inputs.environment import Environment
from tasks.inputs.factories import make_target
from tasks.inputs.loader import load
from tasks.models import text_embedder
from tasks.store.runtime.promotions import set_champion
from tasks.store.runtime.rows import Champion
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.commands import Runner
from tests.support.optimizations import write_project
from tests.support.store_rows import generation_tables, run_record

NOWHERE = "http://127.0.0.1:9/v1"
"""Nobody listens there; whoever calls fails."""
PRICES = {
    "small": {"input": 1.0, "output": 4.0},
    "large": {"input": 10.0, "output": 40.0, "cache_write": 12.5},
}


def chat(folder: Path, **sections: Any) -> Path:
    """Write the configuration of a chat model with four candidates and three cases."""
    tree: dict[str, Any] = {
        "api": {"name": "bot", "kind": "openai", "endpoint": NOWHERE},
        "search_space": {
            "parameters": {
                "model": {"type": "categorical", "choices": ["small", "large"]},
                "max_tokens": {"type": "int", "min": 100, "max": 300, "step": 200},
            }
        },
        "evaluation": {
            "test_cases": {"inline": [{"input": text} for text in ("a" * 50, "b" * 400, "c" * 9)]},
            "metrics": {"answer": {"type": "regex", "pattern": "x"}},
        },
        "optimization": {
            "evolution": {"population_size": 4, "generations": 2},
            "execution": {"early_stopping": {"enabled": False}},
        },
        "prices": PRICES,
        **sections,
    }
    path = folder / "optimization.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return path


def judged(mode: str, votes: int = 1, **llm: Any) -> dict[str, Any]:
    """Return sections of a configuration with a judge."""
    return {
        "llm": {
            "model": "small",
            "endpoint": NOWHERE,
            "max_tokens": 100,
            "temperature": 0.5,
            **llm,
        },
        "evaluation": {
            "test_cases": {"inline": [{"input": "a" * 50}, {"input": "b" * 60}]},
            "metrics": {
                "quality": {"type": "llm_judge", "mode": mode, "votes": votes, "rubric": "Good?"}
            },
        },
    }


def remember(store: Path, name: str = "bot", run_id: str = "01J8ZC0000000000000000ABCD",
             **attempt: object) -> None:  # fmt: skip
    """Publish a run of one generation whose six calls used what ``attempt`` says."""
    written = ParquetStore(store)
    tables: dict[str, list[Row]] = dict(generation_tables(run_id))
    tables["attempts"] = [{**row, **attempt} for row in tables["attempts"]]
    written.publish(run_id, 0, tables)
    written.save_run(run_record(run_id, name=name))
    written.close()


def role(found: Any, name: str) -> Any:
    (only,) = (role for role in found["roles"] if role["role"] == name)
    return only


def test_nothing_is_called_and_nothing_is_written(here: Path, cli: Runner):
    write_project(here)
    before = sorted(here.iterdir())
    assert cli("estimate").code == 0
    assert cli("optimize", "--dry-run").code == 0
    chat(here)
    assert cli("estimate").code == 0
    assert sorted(path for path in here.iterdir() if path.name != "__pycache__") == before


def test_a_champion_is_part_of_the_plan(here: Path, cli: Runner):
    write_project(here)
    loaded = load(here / "optimization.yaml")
    other = loaded.space.candidate({"x": 0.9, "kind": "b"}, origin="default")
    store = here / "convergence-data"
    plan = 9 * 6 * 4 + 3 * (9 + 3)
    for params, calls in ((loaded.space.baseline() or {}, plan - 9 - 3), (other.params, plan)):
        with RuntimeStore(store) as state:
            set_champion(
                state,
                Champion(
                    system="known", candidate_id="c", params=dict(params), run_id=None,
                    reason="promoted", created_us=1,
                ),
            )  # fmt: skip
        found = cli("estimate", "--json").json
        assert role(found, "evaluation")["calls"]["high"] == calls


def test_a_cap_that_leaves_no_final_look_is_told_before_anything_is_paid(here: Path, cli: Runner):
    write_project(here, budget={"max_calls": 6})
    why = "budget.max_calls=6 reserves 1 for the final test"
    assert why in cli("estimate").out
    told = cli("validate").out
    assert f"at the end  nothing: {why}" in told
    assert cli("validate", "--json").json["run"]["final_shortage"].startswith(why)
    write_project(here)
    assert cli("validate", "--json").json["run"]["final_shortage"] is None


@pytest.mark.parametrize(("package", "is_told"), [("json", True), ("absent_package", False)])
def test_validate_names_the_embedding_of_texts(
    package: str, is_told: bool, here: Path, cli: Runner, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(text_embedder, "PACKAGE", package)
    write_project(here)
    assert ("of cases and requests, embedded by e5-small" in cli("validate").out) == is_told


def test_unknown_price_is_unknown_and_says_what_to_write(here: Path, cli: Runner):
    write_project(here, budget={"max_usd": 1})
    target = role(cli("estimate", "--json").json, "evaluation")
    assert target["usd"] == {"expected": None, "high": None}
    done = cli("estimate")
    assert "unknown" in done.out
    assert "Write `prices: {function: {request: …}}`" in done.out
    assert "budget.max_usd=1 refuses calls whose price is unknown" in done.out


def test_most_is_what_the_budget_would_reserve_for_the_dearest_call(here: Path, cli: Runner):
    config = chat(here)
    found = role(cli("estimate", "--json").json, "evaluation")
    loaded = load(config)
    target = make_target(loaded, Environment.unchecked(loaded.configuration))
    worst = [target.worst_case(p, case) for p in loaded.space.points() for case in loaded.cases]
    assert found["usd"]["high"] == pytest.approx(
        found["calls"]["high"] * max(w.usd or 0 for w in worst)
    )
    assert found["tokens"]["high"] == found["calls"]["high"] * max(w.tokens or 0 for w in worst)
    assert 0 < found["usd"]["expected"] < found["usd"]["high"]
    assert 0 < found["tokens"]["expected"] < found["tokens"]["high"]
    assert found["basis"] == "the cases, and answers of 150 tokens or as `expected`"


def test_earlier_runs_of_the_system_calibrate(here: Path, cli: Runner):
    chat(here)
    store = here / "convergence-data"
    remember(store, tokens_in=100, tokens_out=20, cost_usd=0.002)
    remember(store, run_id="01J8ZC0000000000000000ABCE", tokens_in=100, tokens_out=20,
             cost_usd=0.002)  # fmt: skip
    remember(store, name="other", run_id="01J8ZC0000000000000000ABCF", tokens_in=9, tokens_out=9)
    found = role(cli("estimate", "--json").json, "evaluation")
    assert found["basis"] == "calibrated by 12 calls of 2 earlier runs"
    n_calls = found["calls"]["high"]
    assert found["tokens"] == dict.fromkeys(("expected", "high"), n_calls * 120)
    assert found["usd"] == pytest.approx(dict.fromkeys(("expected", "high"), n_calls * 0.002))


def test_a_compatible_endpoint_has_the_prices_of_its_host(here: Path, cli: Runner):
    endpoint = "https://api.deepseek.com/v1"
    quiet = {"thinking": {"type": "disabled"}}  # while it thinks, it ignores a temperature
    options = {"model": "deepseek-v4-flash", "max_tokens": 50, **quiet}
    sections = judged("rating", model="deepseek-v4-flash", endpoint=endpoint)
    api = {"name": "bot", "kind": "openai", "endpoint": endpoint, "request": {"options": options}}
    k = {"type": "float", "min": 0, "max": 1}
    chat(here, **sections, api=api, prices={}, search_space={"parameters": {"temperature": k}})
    found = cli("estimate", "--json").json
    for name in ("evaluation", "judge"):
        assert role(found, name)["unknown"] is None
        assert role(found, name)["usd"]["high"] > 0


def test_only_what_was_measured_warns_that_a_limit_stops_the_run(here: Path, cli: Runner):
    chat(here)
    warning = "will probably stop the run early"
    expected = cli("estimate", "--json").json["total"]["usd"]["expected"]
    guess = cli("estimate", "--json", "--max-usd", expected / 2).json
    assert guess["total"]["usd"]["high"] == expected / 2
    assert not any(warning in note for note in guess["notes"])
    remember(here / "convergence-data", tokens_in=100, tokens_out=20, cost_usd=0.002)
    expected = cli("estimate", "--json").json["total"]["usd"]["expected"]
    for share, warns in ((0.5, True), (1.01, False)):
        measured = cli("estimate", "--json", "--max-usd", expected * share).json
        assert any(warning in note for note in measured["notes"]) is warns


def test_an_answer_is_expected_to_be_usual_or_as_long_as_its_case_expects(here: Path, cli: Runner):
    endless = {"model": {"type": "categorical", "choices": ["small"]}}
    price = {"small": {**PRICES["small"], "max_output_tokens": 100_000}}

    def answer(expected: str) -> float:
        case = {"input": "a" * 40, "expected": expected}
        metrics = {"answer": {"type": "contains"}}
        chat(
            here, search_space={"parameters": endless}, prices=price,
            evaluation={"test_cases": {"inline": [case]}, "metrics": metrics},
        )  # fmt: skip
        found = role(cli("estimate", "--json").json, "evaluation")
        return float(found["usd"]["expected"] / found["calls"]["expected"] * 1e6 / 4)

    assert 150 <= answer("short") < 200
    assert 1_000 <= answer("x" * 4_000) < 1_050


def test_the_smallest_cap_that_affords_a_call_is_told_and_is_one(here: Path, cli: Runner):
    chat(here, **judged("rating"))
    found = cli("estimate", "--json").json
    least = found["total"]["least_usd"]
    assert least == max(one["least_usd"] for one in found["roles"])
    chat(here, **judged("rating"), budget={"max_usd": least / 2})
    why = cli("validate", "--json").json["unaffordable"]
    assert why.startswith(f"budget.max_usd={least / 2:.12g} affords no call of ")
    assert "(lower `api.request.options.max_tokens`)" in why
    assert why in " ".join(cli("estimate").out.split())
    chat(here, **judged("rating"), budget={"max_usd": least})
    assert cli("validate", "--json").json["unaffordable"] is None


# -- thoughts


def thoughtful(folder: Path, model: str = "small", **society: Any) -> Path:
    """Write a configuration that thinks, with a priced model."""
    return chat(
        folder,
        llm={"model": model, "endpoint": NOWHERE},
        society={"enabled": True, "rlp": {"n_predicted": 4, **society}},
        optimization={
            "evolution": {"population_size": 4, "generations": 3},
            "execution": {"early_stopping": {"enabled": False}},
        },
    )


def test_a_thought_is_a_call_a_generation_and_two_at_most(here: Path, cli: Runner):
    thoughtful(here)
    found = cli("estimate", "--json").json
    thoughts = role(found, "thought")
    assert thoughts["calls"] == {"expected": 3, "high": 6}
    assert 0 < thoughts["usd"]["expected"] < thoughts["usd"]["high"]
    total = found["total"]["calls"]["high"]
    assert total == sum(one["calls"]["high"] for one in found["roles"])
    cli("estimate")


def test_requests_in_place_of_refused_texts_are_told_before_a_run(here: Path, cli: Runner):
    text = {"type": "text", "variants": ["Say x."], "default": "Say x.", "mutate": True}
    model = {"type": "categorical", "choices": ["small", "large"], "default": "small"}
    chat(
        here,
        search_space={"parameters": {"system": text, "model": model}},
        llm={"model": "large", "endpoint": NOWHERE},
        prompts={"n_texts": 3, "every": 2, "max_share_usd": 0.5},
    )
    found = cli("estimate", "--json", "--generations", "6", "--max-usd", "4").json
    writing = role(found, "writing")
    assert writing["calls"] == {"expected": 9, "high": 18}  # before 2, 4 and 6
    assert writing["usd"]["high"] <= 2
    assert cli("validate", "--json").json["run"]["calls"] > found["roles"][0]["calls"]["high"] / 3
