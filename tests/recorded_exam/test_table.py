"""The recorded exam: a sound table, replies that equal it, and a README that reads it rightly."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import yaml

from convergence_core.config import parse_mapping
from convergence_core.objective import RewardModel
from convergence_core.ports import Metric
from convergence_core.records import Case
from tasks.functions.user_functions import resolve
from tasks.inputs.factories import make_metrics, make_target
from tasks.inputs.loader import Loaded, load

FOLDER = Path(__file__).parents[2] / "data/recorded-exam"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
CONFIG = yaml.safe_load((FOLDER / "optimization.yaml").read_text(encoding="utf-8"))
RUNS = [json.loads(line) for line in (FOLDER / "answers.jsonl").read_text("utf-8").splitlines()]
LISTS = ("answers", "tokens_in", "tokens_out", "seconds")


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load(FOLDER / "optimization.yaml")


def params_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that lead to a run: the technique only where it is searched."""
    params = {"model": run["model"], "temperature": run["temperature"]}
    if run["model"] == "gpt-35-turbo":
        params["technique"] = run["technique"]
    return params


def usd(run: Mapping[str, Any], place: int) -> float:
    per_in, per_out = run["usd_per_million_tokens_in"], run["usd_per_million_tokens_out"]
    return float((run["tokens_in"][place] * per_in + run["tokens_out"][place] * per_out) / 1e6)


def mean_rewards(
    cases: Sequence[Case], metrics: Mapping[str, Any] | None = None
) -> dict[tuple[str, str, float], float]:
    """Return (model, technique, temperature) → mean reward over the cases, from the table alone."""
    tree = json.loads(json.dumps(CONFIG))
    if metrics is not None:
        tree["evaluation"]["metrics"] = metrics
    model = RewardModel(parse_mapping(tree).evaluation.metrics)
    found = {}
    for run in RUNS:
        rewards = []
        for case in cases:
            assert isinstance(case.input, dict)
            place = int(str(case.input["problem"])) - 1
            values = {
                "quality": float(run["answers"][place] == case.expected),
                "cost_usd": usd(run, place),
                "latency_ms": 1000.0 * run["seconds"][place],
            }
            reward = model.score(values).reward
            assert reward is not None
            rewards.append(reward)
        found[run["model"], run["technique"], run["temperature"]] = fmean(rewards)
    return found


def test_the_table_is_complete():
    """Nine models by chain of thought, one of them by four more techniques, eleven temperatures."""
    choices = CONFIG["search_space"]["parameters"]
    pairs = {(model, "chain_of_thought") for model in choices["model"]["choices"]}
    pairs |= {("gpt-35-turbo", technique) for technique in choices["technique"]["choices"]}
    wanted = {(*pair, tenths / 10) for pair in pairs for tenths in range(11)}
    assert len(wanted) == len(RUNS) == 143
    assert {(run["model"], run["technique"], run["temperature"]) for run in RUNS} == wanted
    assert all(len(run[name]) == 100 for run in RUNS for name in LISTS)
    assert all(min(run[name]) >= 0 for run in RUNS for name in LISTS[1:])


def test_the_search_space_is_the_table(loaded: Loaded):
    assert loaded.space.size() == len(RUNS)


def test_cases_are_a_hundred_problems_without_their_texts(loaded: Loaded):
    assert [case.input for case in loaded.cases] == [{"problem": n} for n in range(1, 101)]
    assert {case.expected for case in loaded.cases} == set("ABCDE")
    assert (len(loaded.search_cases), len(loaded.holdout_cases)) == (50, 50)


def test_replies_and_metrics_equal_the_table(loaded: Loaded):
    async def replay_all() -> None:
        target = make_target(loaded)
        metrics = make_metrics(loaded)
        try:
            for number, run in enumerate(RUNS):
                # A few problems of each run; over all runs, every problem.
                for place in range(number % 11, 100, 11):
                    case, params = loaded.cases[place], params_of(run)
                    reply = await target.call(params, case)
                    assert reply.value == run["answers"][place]
                    assert reply.cost_usd == 0.0
                    values: dict[str, float | None] = {}
                    for metric in metrics:
                        assert isinstance(metric, Metric)
                        values[metric.name] = await metric.measure(reply, case, params)
                    assert values == {
                        "quality": float(run["answers"][place] == case.expected),
                        "cost_usd": pytest.approx(usd(run, place)),
                        "latency_ms": 1000.0 * run["seconds"][place],
                    }
        finally:
            await target.aclose()

    asyncio.run(replay_all())


@pytest.mark.parametrize(
    ("problem", "params", "message"),
    [
        (1, {"model": "gpt-4", "temperature": 1.2}, "temperature=1.2 was recorded"),
        (1, {"model": "gpt-4", "temperature": 0.0, "technique": "baseline"}, "technique=baseline"),
        (1, {"model": "gpt-9", "temperature": 0.0}, "model=gpt-9"),
        (0, {"model": "gpt-4", "temperature": 0.0}, "between 1 and 100, but got 0"),
        (101, {"model": "gpt-4", "temperature": 0.0}, "between 1 and 100, but got 101"),
    ],
)
def test_what_was_not_recorded_is_refused(problem: int, params: dict[str, Any], message: str):
    answer = resolve("replay.py:answer", FOLDER, key="api.function")
    with pytest.raises(ValueError, match=message):
        answer({"problem": problem}, params)


def test_the_exact_best_by_enumeration_is_what_the_readme_says(loaded: Loaded):
    rewards = mean_rewards(loaded.cases)
    first, second = sorted(rewards, key=lambda key: -rewards[key])[:2]
    ahead = rewards[first] - rewards[second]
    assert (first[:2], second[:2]) == (("gpt-35-turbo", "chain_of_thought"),) * 2
    on_search = mean_rewards(loaded.search_cases)
    seen = max(on_search, key=on_search.__getitem__)
    said = " ".join(README.split())
    assert (
        f"The exact best is `{first[0]}` by `{first[1]}` at {first[2]:.1f}, with {second[2]:.1f} "
        f"behind it by {ahead:.4f}."
    ) in said
    assert (
        f"among those `{seen[1]}` at {seen[2]:.1f} comes first too ({on_search[seen]:.3f}, and "
        f"{rewards[seen]:.3f} over all 100)"
    ) in said
    assert seen[0] == "gpt-35-turbo"
