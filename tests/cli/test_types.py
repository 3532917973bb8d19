"""Configurations in Python, and what else ``run_optimization`` is given."""

from pathlib import Path
from typing import Any

import pytest

import convergence
from convergence.evaluators import reported
from convergence.optimize.inputs import load_config
from convergence.runtime import functions
from convergence.types import (
    ApiConfig,
    ConvergenceConfig,
    EvaluationConfig,
    RunnerConfig,
    SearchSpaceConfig,
)
from convergence_core.errors import ConfigurationError
from convergence_core.records import Params
from tasks.store.runtime.promotions import set_champion
from tasks.store.runtime.rows import Champion
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import begin_guard


def config(**changes: Any) -> ConvergenceConfig:
    parts: dict[str, Any] = {
        "api": ApiConfig(name="bot", endpoint="http://localhost:9/chat"),
        "search_space": SearchSpaceConfig(
            parameters={
                "temperature": {"type": "float", "min": 0.1, "max": 1.5},
                "model": {"type": "categorical", "choices": ["a", "b"]},
            }
        ),
        "evaluation": EvaluationConfig(required_metrics=["quality"], weights={"quality": 1.0}),
        "runner": RunnerConfig(generations=4, population=6),
    }
    return ConvergenceConfig(**{**parts, **changes})


def test_configuration_of_the_original_loads():
    loaded = load_config(config())
    configuration = loaded.configuration
    assert configuration.api.kind == "http"
    assert configuration.optimization.evolution.generations == 4
    assert configuration.optimization.evolution.population_size == 6
    assert list(configuration.search_space.parameters) == ["temperature", "model"]
    metric = configuration.evaluation.metrics["quality"]
    assert metric.type == "function"
    assert metric.function == "convergence.evaluators:reported"


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"evaluation": EvaluationConfig(required_metrics=["q"], weights={"p": 1})},
         "evaluation.weights.p"),
    ],
)  # fmt: skip
def test_a_weight_without_a_metric_is_refused(changes: dict[str, Any], key: str):
    with pytest.raises(ConfigurationError) as caught:
        load_config(config(**changes))
    assert [problem.key for problem in caught.value.problems] == [key]
    assert all(problem.fix for problem in caught.value.problems)


def test_mapping_is_loaded_and_left_as_it_is():
    mapping = config().to_mapping()
    before = str(mapping)
    load_config(mapping, test_cases=[{"id": "a", "input": {"x": 1}}])
    assert str(mapping) == before


def test_test_cases_replace_those_of_the_configuration_and_keep_its_holdout(tmp_path: Path):
    mapping = config().to_mapping()
    mapping["evaluation"]["test_cases"] = {"path": "missing.json", "holdout": 0.5}
    cases = [{"id": str(n), "input": {"n": n}, "meta": {"by": "us"}} for n in range(4)]
    loaded = load_config(mapping, test_cases=lambda: iter(cases))
    assert len(loaded.holdout_cases) == 2
    assert {case.case_id for case in loaded.cases} == {"0", "1", "2", "3"}


def test_local_function_takes_the_place_of_the_endpoint():
    loaded = load_config(config(), local_function=lambda **keywords: 1)
    assert (loaded.configuration.api.kind, loaded.configuration.api.endpoint) == ("function", None)


def test_file_and_replacements_go_together(tmp_path: Path):
    (tmp_path / "c.yaml").write_text(
        "api: {name: bot}\n"
        "search_space: {parameters: {x: {type: float, min: 0, max: 1}}}\n"
        "evaluation: {metrics: {exact_match: {weight: 1}}}\n"
    )
    loaded = load_config(
        tmp_path / "c.yaml",
        local_function=lambda x: x,
        test_cases=[{"id": "a", "input": {}, "expected": 1}],
    )
    assert loaded.base_dir.resolve() == tmp_path.resolve()
    assert loaded.configuration.api.kind == "function"


@pytest.mark.parametrize(
    ("given", "keywords"),
    [
        (42, {"test_cases": []}),
        ("nowhere.yaml", {}),
        ("nowhere.yaml", {"test_cases": []}),
        ({"api": []}, {"local_function": "m.f"}),
        ({"api": {"name": "x"}}, {"local_function": "nodots"}),
    ],
)
def test_wrong_inputs_are_configuration_errors(given: Any, keywords: dict[str, Any]):
    with pytest.raises(ConfigurationError):
        load_config(given, **keywords)


@pytest.mark.parametrize(
    ("result", "value"), [({"quality": 0.5}, 0.5), ({"quality": True}, 1.0), (0.25, 0.25)]
)
def test_reported_number_is_read_from_the_answer(result: object, value: float):
    assert reported(result, None, {}, "quality") == value


def on_offer(system: str) -> set[float]:
    arms = convergence.runtime_arms_sync(system)
    return {arm["params"]["temperature"] for arm in arms if not arm["retired"]}


def test_a_configuration_offers_the_latest_runs_candidates_in_place_of_the_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    points: list[float] = [0.1, 0.2, 0.3, 0.4]
    monkeypatch.setattr(
        functions, "_of_runs", lambda *_: [{"temperature": t, "model": "a"} for t in points]
    )

    def configure() -> None:
        convergence.configure_runtime_sync("bot", config=config(), storage=tmp_path / "s")

    configure()
    assert on_offer("bot") == {0.1, 0.2, 0.3, 0.4}
    explicit = [{"arm_id": "mine", "params": {"temperature": 1.4}}]
    convergence.runtime_offer_arms_sync("bot", explicit)
    ids = {a["params"]["temperature"]: a["arm_id"] for a in convergence.runtime_arms_sync("bot")}
    champion: Params = {"temperature": 0.1, "model": "a"}
    with RuntimeStore(tmp_path / "s") as store:
        set_champion(
            store,
            Champion(
                system="bot",
                candidate_id="c",
                params=champion,
                run_id=None,
                reason="",
                created_us=1,
            ),
        )
        begin_guard(
            store, 1, promoted=ids[0.2], champion=ids[0.1], alpha=0.05, tolerance=0.0, holdback=0.1
        )
    points[:] = [0.4, 0.5, 0.6, 0.7]
    configure()
    assert on_offer("bot") == {0.1, 0.2, 1.4, *points}, "champion, ramp and explicit offers stay"
    retired = [arm for arm in convergence.runtime_arms_sync("bot") if arm["retired"]]
    assert [arm["arm_id"] for arm in retired] == [ids[0.3]], "its data stay"
    again = [{"arm_id": f"by hand {t}", "params": {"temperature": t}} for t in (1.0, 1.1)]
    by_hand = {"default_arms": again}
    convergence.configure_runtime_sync("bot", config=by_hand, storage=tmp_path / "s")
    configure()
    assert {1.0, 1.1} < on_offer("bot"), "arms of settings by hand"


def test_before_the_first_run_a_configuration_needs_no_target(tmp_path: Path):
    of_function = config(api=ApiConfig(name="my_api"))
    convergence.configure_runtime_sync("fn", config=of_function, storage=tmp_path / "s")
    assert len([arm for arm in convergence.runtime_arms_sync("fn") if not arm["retired"]]) == 4
