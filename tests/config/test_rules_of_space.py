"""Rules of the search space, each by name."""

import pytest

from tests.support.config_examples import REMOVED, Rule, check_rule

P = "search_space/parameters/"

SPACE: dict[str, Rule] = {
    "min above max": (
        {P + "t": {"type": "float", "min": 1.2, "max": 0.3}},
        "search_space.parameters.t.max",
        "must exceed `min`",
        "Swap them",
    ),
    "min equals max": (
        {P + "n": {"type": "int", "min": 3, "max": 3}},
        "search_space.parameters.n.max",
        "must exceed `min`",
        "choices: [3]",
    ),
    "log from zero": (
        {P + "t/log": True},
        "search_space.parameters.t.min",
        "must be above 0 when `log`",
        "Raise `min`",
    ),
    "step beyond the range": (
        {P + "t/step": 1.5},
        "search_space.parameters.t.step",
        "must not exceed the range",
        "smaller step",
    ),
    "step too small": (
        {P + "t/step": 1e-320},
        "search_space.parameters.t.step",
        "is too small",
        "larger step",
    ),
    "default out of bounds": (
        {P + "t/default": 2, P + "n/default": 1, P + "m/default": "a"},
        "search_space.parameters.t.default",
        "must be between min=0.0 and max=1.0",
        "possible values",
    ),
    "default between steps": (
        {
            P + "n": {"type": "int", "min": 1, "max": 9, "step": 2, "default": 4},
            P + "t": REMOVED,
            P + "m": REMOVED,
        },
        "search_space.parameters.n.default",
        "in steps of 2",
        "possible values",
    ),
    "default that is no choice": (
        {P + "t/default": 0, P + "n/default": 1, P + "m/default": "c"},
        "search_space.parameters.m.default",
        "must be one of `choices`",
        "possible values",
    ),
    "choice written twice": (
        {P + "m/choices": ["a", "b", "a"]},
        "search_space.parameters.m.choices[2]",
        "must not repeat entry 1",
        "Remove one",
    ),
    "some defaults only": (
        {P + "t/default": 0.5, P + "m/default": "a"},
        "search_space.parameters.n",
        "needs a `default`, since `t`, `m` have one",
        "or remove all defaults",
    ),
    "condition on nothing": (
        {P + "t/when": {"mm": "a"}},
        "search_space.parameters.t.when.mm",
        "must name a parameter",
        "Did you mean `m`?",
    ),
    "condition on itself": (
        {P + "m/when": {"m": "a"}},
        "search_space.parameters.m.when.m",
        "must name another parameter",
        "Remove",
    ),
    "condition without a value": (
        {P + "t/when": {"m": []}},
        "search_space.parameters.t.when.m",
        "must list at least one value",
        "Add one",
    ),
    "condition that cannot hold": (
        {P + "t/when": {"m": ["a", "c"]}},
        "search_space.parameters.t.when.m[1]",
        "must be one of `choices` of `m`",
        "can take",
    ),
    "conditions in a circle": (
        {P + "t/when": {"n": 1}, P + "n/when": {"m": "a"}, P + "m/when": {"t": 1}},
        "search_space.parameters.t.when",
        "must not depend on itself",
        "cycle",
    ),
    "name that is no identifier": (
        {P + "top-p": [1, 2]},
        "search_space.parameters.top-p",
        "must be named by letters",
        "`top_p`",
    ),
    "name that is a word of Python": (
        {P + "lambda": [1, 2]},
        "search_space.parameters.lambda",
        "not be a Python keyword",
        "`lambda_`",
    ),
    "constraint on nothing": (
        {"search_space/constraints": ["t <= nn"]},
        "search_space.constraints[0]",
        "must name a parameter",
        "Did you mean `n`?",
    ),
    "constraint on a text": (
        {"search_space/constraints": ["m < n"]},
        "search_space.constraints[0]",
        "must use numeric parameters only",
        "`float` or `int`",
    ),
    "constraint on the arithmetic of a boolean": (
        {P + "b": {"type": "boolean"}, "search_space/constraints": ["n > b * 2"]},
        "search_space.constraints[0]",
        "must use numeric parameters only",
        "make `b` a `float`",
    ),
    "constraint on a prompt": (
        {
            P + "s": {"type": "text", "variants": ["a.md"]},
            "search_space/constraints": ["s == 'a'"],
        },
        "search_space.constraints[0]",
        "must not use text parameters",
        "other types",
    ),
    "constraint that is no expression": (
        {"search_space/constraints": ["t <="]},
        "search_space.constraints[0]",
        "must be an expression",
        "min_tokens <= max_tokens",
    ),
}


@pytest.mark.parametrize("name", SPACE)
def test_rule_is_reported_where_it_is_broken(name):
    check_rule(SPACE[name])
