"""New arms bred from the best: within the space, new, and none of them on offer."""

from typing import Any

import pytest

import convergence
from convergence_core.errors import ConfigurationError
from tasks.serving.propose_arms import spanned_by
from tasks.serving.settings import RuntimeArm
from tests.runtime.requests import configured, select, update

ARMS: list[dict[str, Any]] = [
    {"arm_id": name, "params": {"model": model, "temperature": t, "k": k}}
    for name, model, t, k in (
        ("a", "small", 0.1, 3),
        ("b", "small", 0.3, 5),
        ("c", "large", 0.5, 8),
        ("d", "large", 0.9, 2),
    )
]
SPACE = {
    "parameters": {
        "model": {"type": "categorical", "choices": ["small", "large", "huge"]},
        "temperature": {"type": "float", "min": 0.0, "max": 1.0},
        "k": {"type": "int", "min": 1, "max": 20},
    }
}


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Arms of which the later ones were better; no test changes them."""
    name = configured(tmp_path_factory.mktemp("arms"), default_arms=ARMS, seed=2, floor=1.0)
    for _ in range(60):
        found = select(name)
        update(name, found, reward={"a": 0.0, "b": 0.2, "c": 0.8, "d": 1.0}[found.arm_id])
    return name


def evolved(system: str, **evolution: Any) -> list[RuntimeArm]:
    return convergence.runtime_evolve_arms_sync(system, evolution_config=evolution)


def test_children_are_of_the_best_and_none_is_on_offer(system: str):
    before = [arm["arm_id"] for arm in convergence.runtime_arms_sync(system)]
    config = {"population_size": 12, "mutation_rate": 0.0}
    children = convergence.runtime_evolve_arms_sync(system, top_n=2, evolution_config=config)
    assert len(children) == 12
    # Both parents are large; what the others span is where numbers may move.
    assert sum(child.params["model"] == "large" for child in children) >= 9
    for child in children:
        assert 0.1 <= child.params["temperature"] <= 0.9
        assert 2 <= child.params["k"] <= 8
    assert [arm["arm_id"] for arm in convergence.runtime_arms_sync(system)] == before
    known = [arm["params"] for arm in ARMS]
    assert not [child for child in children if child.params in known]
    assert len({child.arm_id for child in children}) == 12


def test_a_space_says_where_children_may_lie(system: str):
    config = {"population_size": 40, "mutation_rate": 1.0, "crossover_rate": 0.0}
    children, again = (
        convergence.runtime_evolve_arms_sync(system, search_space=SPACE, evolution_config=config)
        for _ in range(2)
    )
    assert {child.params["model"] for child in children} >= {"small", "huge"}
    assert all(1 <= child.params["k"] <= 20 for child in children)
    assert children == again


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"search_space": {"parameters": {"x": {"type": "float", "min": 2, "max": 1}}}}, "min"),
        ({"search_space": {"parameters": {"x": {"type": "boolean"}}}}, "of an active arm"),
        ({"evolution_config": {"mutation_rate": 2}}, "mutation_rate"),
        ({"evolution_config": {"mutation_rat": 0.2}}, "mutation_rate"),
    ],
)
def test_what_cannot_be_bred_from_is_said(system: str, arguments: dict[str, Any], match: str):
    with pytest.raises(ConfigurationError, match=match):
        convergence.runtime_evolve_arms_sync(system, **arguments)


def test_points_span_what_lies_between_their_numbers_and_the_values_of_all_else():
    points: list[dict[str, Any]] = [
        {"n": 1, "x": 1, "on": True, "m": "a"},
        {"n": 3, "x": 2.5, "on": False, "m": "a"},
    ]
    assert spanned_by(points) == {
        "n": {"type": "int", "min": 1, "max": 3},
        "x": {"type": "float", "min": 1, "max": 2.5},
        "on": {"type": "categorical", "choices": [True, False]},
        "m": {"type": "categorical", "choices": ["a"]},
    }
