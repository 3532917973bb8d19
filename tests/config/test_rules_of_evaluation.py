"""Rules of evaluation and optimization, each by name."""

import pytest

from tests.support.config_examples import Rule, check_rule

M = "evaluation/metrics/"

EVALUATION: dict[str, Rule] = {
    "no test cases": (
        {"evaluation/test_cases": {}},
        "evaluation.test_cases.path",
        "is required, unless there are `inline`",
        "cases.json",
    ),
    "test cases twice": (
        {"evaluation/test_cases/inline": [{"input": 1}]},
        "evaluation.test_cases.path",
        "cannot be combined with `inline`",
        "Remove one",
    ),
    "metric without a type": (
        {M + "quality": {"weight": 1}},
        "evaluation.metrics.quality.type",
        "is required",
        "`exact_match`",
    ),
    "no weight at all": (
        {M + "exact_match/weight": 0},
        "evaluation.metrics",
        "at least one metric with a weight",
        "weight: 1",
    ),
    "front of one metric": (
        {"evaluation/objective": "pareto"},
        "evaluation.objective",
        "must be `reward` if only one metric has a weight",
        "Give another metric a weight",
    ),
    "front by a plain genetic algorithm": (
        {
            "evaluation/objective": "pareto",
            M + "latency_ms": {"weight": 1},
            "optimization/algorithm": "evolution",
        },
        "evaluation.objective",
        "with `optimization.algorithm: evolution`",
        "mab_evolution",
    ),
    "forbidden tools that nothing names": (
        {M + "safe": {"type": "tool_allowed"}},
        "evaluation.metrics.safe.forbidden",
        "is required by type `tool_allowed`",
        "forbidden: [delete_*]",
    ),
    "forbidden tools of another type": (
        {M + "steps": {"type": "tool_calls", "forbidden": ["delete_*"]}},
        "evaluation.metrics.steps.forbidden",
        "has no effect with type `tool_calls`",
        "tool_allowed",
    ),
    "tolerance without a constraint": (
        {"evaluation/max_broken": 0.2},
        "evaluation.max_broken",
        "has no effect: no metric has a `min` or `max`",
        "Remove it",
    ),
    "repeats of a target that always answers the same": (
        {"evaluation/deterministic": True, "evaluation/repeats": 3},
        "evaluation.repeats",
        "must be 1 if `evaluation.deterministic` is true",
        "Remove `repeats`",
    ),
    "metric's option of another type": (
        {M + "exact_match/tolerance": 0.1},
        "evaluation.metrics.exact_match.tolerance",
        "has no effect with type `exact_match`",
        "`numeric`",
    ),
    "broken pattern": (
        {M + "x": {"type": "regex", "pattern": "(a"}},
        "evaluation.metrics.x.pattern",
        "must be a regular expression",
        "Escape",
    ),
    "method that nothing reads": (
        {M + "bleu": {"method": "rouge1"}},
        "evaluation.metrics.bleu.method",
        "has no effect with type `bleu`",
        "Remove it",
    ),
    "scale against the direction": (
        {M + "latency_ms": {"direction": "lower", "scale": {"good": 9, "bad": 1}}},
        "evaluation.metrics.latency_ms.scale",
        "must agree with direction `lower`",
        "Swap",
    ),
    "two directions": (
        {M + "exact_match": {"type": "lower_is_better", "direction": "higher"}},
        "evaluation.metrics.exact_match.type",
        "must not contradict",
        "Remove one",
    ),
    "function without a function": (
        {M + "own": {"type": "function"}},
        "evaluation.metrics.own.function",
        "is required by type `function`",
        "metrics.py:quality",
    ),
    "elite of everybody": (
        {"optimization/evolution": {"population_size": 4, "elite_size": 4}},
        "optimization.evolution.elite_size",
        "must be below `population_size` (4)",
        "3 or less",
    ),
}


@pytest.mark.parametrize("name", EVALUATION)
def test_rule_is_reported_where_it_is_broken(name):
    check_rule(EVALUATION[name])
