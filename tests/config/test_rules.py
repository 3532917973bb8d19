"""What all rules have in common: what they leave alone, and how they are told."""

import pytest

from convergence_core.config import parse_configuration, parse_mapping
from convergence_core.errors import ConfigurationError
from tests.support.config_examples import CHAT, HTTP_ENDPOINT as HTTP, REMOVED, edited, problems_of

P = "search_space/parameters/"
M = "evaluation/metrics/"


@pytest.mark.parametrize(
    "changes",
    [
        {P + "t": {"type": "float", "min": 0.1, "max": 0.7, "step": 0.1, "default": 0.4}, P + "n/default": 1, P + "m/default": "a"},
        {P + "m/choices": [1, True, "1", 0, False]},
        {P + "t/when": {"m": ["a", "b"]}, P + "n/when": {"t": 0.5}},
        {P + "n/default": 3, P + "t/default": 0, P + "m/default": "a", P + "x": {"type": "boolean", "when": {"m": "b"}}},
        {"search_space/constraints": ["t <= n", "n * 2 >= 3", "0 < t + 1 <= n"]},
        {"search_space/constraints": ["m == 'a' or n < 3", "m in ['a', 'b']", "not (m != 'a')"]},
        {P + "b": {"type": "boolean"}, "search_space/constraints": ["b or not b", "b == True"]},
        {P + "k": [1, 2.5], "search_space/constraints": ["k <= n"]},
        {"optimization/evolution": {"population_size": 2, "elite_size": 0}},
        {"optimization/evolution": {"population_size": 2}},  # nobody is an elite there
        {"optimization/evolution": {"population_size": 2, "elite_size": 2}},  # as a run stores it
        {"budget": None, "society": {}, "api/auth": None},
        {M + "x": {"type": "regex", "pattern": r"\d+", "case_sensitive": False}},
    ],
)  # fmt: skip
def test_what_is_right_is_accepted(changes):
    assert problems_of(changes) == []


@pytest.mark.parametrize(
    ("changes", "base"),
    [
        ({"api/auth": {"type": "none", "token_env": "T"}}, HTTP),
        (
            {
                "api/request/body": {
                    "a": "{t}",
                    "b": "{input.x[0].y}",
                    "c": "{{x}}",
                    "d": '{"e": 1}',
                }
            },
            HTTP,
        ),
        ({"api/request/headers": {"Authorization": "Bearer ${MY_TOKEN}"}}, HTTP),
        ({"api/response/cost_field": "usage.cost", M + "cost_usd": {}}, HTTP),
        ({"api/endpoint": "http://127.0.0.1:8000/v1?api-version=1"}, CHAT),
    ],
)
def test_what_is_right_for_a_kind_is_accepted(changes, base):
    assert problems_of(changes, base) == []


def test_callables_of_python_stand_for_functions():
    data = edited({"api/function": REMOVED, M + "quality": {"weight": 1}})
    with pytest.raises(ConfigurationError):
        parse_mapping(data)
    configuration = parse_mapping(data, allow_callable=True)
    assert (configuration.api.kind, configuration.api.function) == ("function", None)
    assert configuration.evaluation.metrics["quality"].type == "function"


def test_message_names_key_rule_value_and_fix():
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(
            "api: {name: b, function: 'm:f'}\n"
            "search_space:\n  parameters:\n    temperature: {type: float, min: 1.2, max: 0.3}\n"
            "evaluation: {test_cases: c.json, metrics: {exact_match: {}}}\n",
            file="f.yaml",
        )
    assert str(caught.value) == (
        "f.yaml:4:47: `search_space.parameters.temperature.max` must exceed `min`, but got "
        "min=1.2, max=0.3. Swap them, or correct one of them."
    )


TYPES_AND_RULES = """
api: {name: 3, function: m, colour: red}
search_space:
  parameters:
    a: {type: float, min: 2, max: 1}
    b: {type: int, min: 0, max: x}
    c: {type: text, variants: [p, p], when: {b: 1, z: 2}}
evaluation:
  test_cases: {holdout: 2}
  metrics: {m: {weight: -1, type: numeric}, n: {type: exact_match, pattern: x}}
budget: {max_usd: -3}
nonsense: 1
"""
TYPES_MENDED = {
    "name: 3, function: m, colour: red": "name: b, function: 'm:f'",
    "max: x": "max: 3",
    "holdout: 2": "holdout: 0",
    "weight: -1": "weight: 0",
    ", pattern: x": ", weight: 0",
    "max_usd: -3": "max_usd: 3",
    "nonsense: 1": "",
}


def keys_in_order(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(text, file="f.yaml")
    places = [(problem.line, problem.column) for problem in caught.value.problems]
    assert places == sorted(places)
    return [problem.key for problem in caught.value.problems]


def test_all_problems_of_a_step_come_at_once_in_the_order_of_the_file():
    assert keys_in_order(TYPES_AND_RULES) == [
        "api.name",
        "api.function",
        "api.colour",
        "search_space.parameters.b.max",
        "evaluation.test_cases.holdout",
        "evaluation.metrics.m.weight",
        "evaluation.metrics.n.pattern",
        "budget.max_usd",
        "nonsense",
    ]
    mended = TYPES_AND_RULES
    for wrong, right in TYPES_MENDED.items():
        mended = mended.replace(wrong, right)
    assert keys_in_order(mended) == [
        "search_space.parameters.a.max",
        "search_space.parameters.c.variants[1]",
        "search_space.parameters.c.when.z",
        "evaluation.test_cases.path",
        "evaluation.metrics",
    ]


def test_a_misspelt_key_is_not_reported_as_missing_too():
    found = problems_of({"evaluation/test_case": "x", "evaluation/test_cases": REMOVED})
    assert [problem.key for problem in found] == ["evaluation.test_case"]
