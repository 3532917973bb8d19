"""Types, bounds, required and unknown keys: each rule by name."""

import pytest

from tests.support.config_examples import REMOVED, Rule, check_rule

P = "search_space/parameters/"
M = "evaluation/metrics/"

TYPES: dict[str, Rule] = {
    "text for an integer": (
        {"optimization/seed": "3"},
        "optimization.seed",
        "must be a whole number",
        "Write 3, without quotes",
    ),
    **{
        f"{text!r} for a number": (
            {"budget/max_usd": text},
            "budget.max_usd",
            "must be a number",
            fix,
        )
        for text, fix in {
            "10 20": "Write digits, e.g. 1.",
            "1, 2": "Write digits, e.g. 1.",
            "2024 12": "Write digits, e.g. 1.",
            "1,5": "Write digits, e.g. 1.",
            "1 000,00": "Write digits, e.g. 1.",
            "1 000": "Write 1000, without quotes",
            "$ 1,234,567.50": "Write 1234567.50, without quotes",
            "5 USD": "Write 5, without quotes",
            " 2 ": "Write 2, without quotes",
        }.items()
    },
    "no test cases": (
        {"evaluation/test_cases": {"inline": []}},
        "evaluation.test_cases.inline",
        "must not be empty",
        "Add at least one entry, e.g. `- {input: …, expected: …}`.",
    ),
    "no metrics": (
        {"evaluation/metrics": {}},
        "evaluation.metrics",
        "must not be empty",
        "Add at least one entry, e.g. `{exact_match: {weight: 1}}`.",
    ),
    "NaN without a dot": (
        {"budget/max_usd": "NaN"},
        "budget.max_usd",
        "must be a number",
        "Write digits, e.g. 1.",
    ),
    "number with underscores": (
        {"budget/max_calls": "1_000"},
        "budget.max_calls",
        "must be a whole number",
        "Write 1000",
    ),
    "boolean for an integer": (
        {"optimization/seed": True},
        "optimization.seed",
        "must be a whole number",
        "Write digits",
    ),
    "word for a boolean": (
        {"storage/keep_text": "yes"},
        "storage.keep_text",
        "must be true or false",
        "Write `true`",
    ),
    "number for a text": ({"api/name": 3}, "api.name", "must be a string", '"3"'),
    "scalar for a mapping": ({"budget": 3}, "budget", "must be a mapping", "key: value"),
    "scalar for a list": (
        {"output/formats": "json"},
        "output.formats",
        "must be a list",
        "Write a list",
    ),
    "huge number": (
        {"api/request/timeout_seconds": 10**400},
        "api.request.timeout_seconds",
        "must be a number",
        "smaller",
    ),
    "list for a choice": (
        {P + "m/choices": ["a", [1]]},
        "search_space.parameters.m.choices[1]",
        "must be a string, a number or a boolean",
        "one value",
    ),
    "unknown word": (
        {"optimization/algorithm": "mab_evoluton"},
        "optimization.algorithm",
        "must be one of `mab_evolution`",
        "Did you mean `mab_evolution`?",
    ),
    "unknown parameter type": (
        {P + "t/type": "flot"},
        "search_space.parameters.t.type",
        "must be one of `float`",
        "Did you mean `float`?",
    ),
    "missing parameter type": (
        {P + "t": {"min": 0, "max": 1}},
        "search_space.parameters.t.type",
        "is required",
        "Add `type:`",
    ),
    "schema that is a number": (
        {M + "x": {"type": "json_schema", "schema": 3}},
        "evaluation.metrics.x.schema",
        "must be a JSON Schema or the path",
        "answer.json",
    ),
    "no parameters": (
        {"search_space/parameters": {}},
        "search_space.parameters",
        "must not be empty",
        "at least one",
    ),
    "name with spaces": ({"api/name": "my bot"}, "api.name", "must be 1 to 64 letters", "Rename"),
    "function without a colon": (
        {"api/function": "bot.answer"},
        "api.function",
        "as `module:name` or",
        "my_module:answer",
    ),
    "below the bound": (
        {"budget/max_calls": 0},
        "budget.max_calls",
        "must be at least 1",
        "Write 1 or more",
    ),
    "above the bound": (
        {"optimization/execution/parallel_workers": 513},
        "optimization.execution.parallel_workers",
        "must be at most 512",
        "512 or less",
    ),
    "time-out of nothing": (
        {"api/request/timeout_seconds": 0},
        "api.request.timeout_seconds",
        "must be above 0",
        "larger",
    ),
    "missing section": ({"evaluation": REMOVED}, "evaluation", "is required", "Add `evaluation:`"),
    "empty required key": (
        {"api/name": None},
        "api.name",
        "is required",
        "Add `name:`",
    ),
    "unknown key": (
        {M + "exact_match/wieght": 1},
        "evaluation.metrics.exact_match.wieght",
        "is not a known key",
        "Did you mean `weight`? Known keys here: `type`",
    ),
    "unknown section": (
        {"optimisation": {}},
        "optimisation",
        "is not a known key",
        "`optimization`",
    ),
    "key of another section": (
        {"seed": 3},
        "seed",
        "is not a known key",
        "It belongs in `optimization`",
    ),
    "key of another parameter type": (
        {P + "t/choices": [1]},
        "search_space.parameters.t.choices",
        "has no effect with type `float`",
        "`categorical`",
    ),
}


@pytest.mark.parametrize("name", TYPES)
def test_rule_is_reported_where_it_is_broken(name):
    check_rule(TYPES[name])
