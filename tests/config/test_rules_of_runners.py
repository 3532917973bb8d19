"""Rules of ``optimization.execution.runner`` and of the keys beside it."""

import pytest

from convergence_core.config import parse_mapping
from tests.support.config_examples import Rule, check_rule, edited

AT = "optimization/execution"
RULES: dict[str, Rule] = {
    "processes in one process": (
        {f"{AT}/processes": 2},
        "optimization.execution.processes",
        "has no effect with `runner: threads`",
        "`runner: processes`",
    ),
    "more processes than calls": (
        {f"{AT}/runner": "processes", f"{AT}/processes": 9, f"{AT}/parallel_workers": 8},
        "optimization.execution.processes",
        "must not exceed `parallel_workers` (8)",
        "Write 8 or less",
    ),
    "a cluster of nobody": (
        {f"{AT}/runner": "processes", f"{AT}/cluster": "tcp://a:1"},
        "optimization.execution.cluster",
        "has no effect with `runner: processes`",
        "`runner: ray`",
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_rule(name: str):
    check_rule(RULES[name])


@pytest.mark.parametrize("runner", ["threads", "processes", "ray"])
def test_every_runner_is_read(runner: str):
    tree = edited({f"{AT}/runner": runner})
    assert parse_mapping(tree).optimization.execution.runner == runner


def test_a_rate_is_that_of_a_host_which_is_asked():
    check_rule(
        (
            {f"{AT}/calls_per_second": {"api.example.org": 10}},
            'optimization.execution.calls_per_second."api.example.org"',
            "must be a host that this configuration calls",
            "Hosts here: none: a function has none",
        )
    )
    asked = edited(
        {
            "api": {"name": "a", "kind": "http", "endpoint": "https://x.example:8443/v1"},
            AT: {"calls_per_second": {"x.example:8443": 2.5}},
        }
    )
    rates = parse_mapping(asked).optimization.execution.calls_per_second
    assert rates == {"x.example:8443": 2.5}
