"""Keys that nothing reads beside the others are told, and told truly."""

from functools import cache
from typing import Any, get_args

import pytest

from convergence_core.config import parse_mapping
from convergence_core.config.optimization import Algorithm
from convergence_core.config.rules import READ_BY, without_effect
from convergence_core.search.samplers import make_sampler
from tests.support import problems
from tests.support.config_examples import edited

OTHER: dict[str, Any] = {
    "mutation_rate": 0.9,
    "crossover_rate": 0.0,
    "elite_size": 6,
    "exploration_rate": 0.7,
}
"""Values far from the defaults."""


@cache
def asked(algorithm: str, section: str, key: str | None = None) -> list[Any]:
    """Return the plans of a search in which that key of the section is far from its default."""
    settings = {} if key is None else {key: OTHER[key]}
    cfg = problems.configuration(algorithm, **{section: settings})
    sampler = make_sampler(cfg, problems.space())
    _, plans = problems.search(sampler, seed=3, n_generations=3)
    return [assignment for plan in plans for assignment in plan.assignments]


@pytest.mark.parametrize("algorithm", get_args(Algorithm))
@pytest.mark.parametrize("path", READ_BY, ids="/".join)
def test_a_key_changes_what_is_asked_by_those_who_read_it_only(
    path: tuple[str, str, str], algorithm: str
):
    _, section, key = path
    reads = algorithm in READ_BY[path]
    assert (asked(algorithm, section, key) != asked(algorithm, section)) == reads


def test_what_is_written_in_vain_is_told_and_what_is_read_or_absent_is_not():
    written = {"optimization/evolution": {"mutation_rate": 0.2, "generations": 3}}
    (told,) = without_effect(parse_mapping(edited(written)))
    assert told == (
        "`optimization.evolution.mutation_rate` has no effect with `algorithm: mab_evolution`: only "
        "`algorithm: evolution` reads it"
    )
    genetic = {**written, "optimization/algorithm": "evolution"}
    assert without_effect(parse_mapping(edited(genetic))) == []
    assert without_effect(parse_mapping(edited({}))) == []


def test_an_unknown_cost_of_an_endpoint_has_no_share_in_the_reward_and_it_is_told():
    metrics = {"exact_match": {"weight": 1}, "cost_usd": {"weight": 0.1}}
    space = {"parameters": {"t": {"type": "float", "min": 0, "max": 1}}}
    cases = [{"input": "a", "expected": "b"}]
    api: dict[str, Any] = {"name": "bot", "endpoint": "https://host/answer"}
    written = {
        "api": api,
        "search_space": space,
        "evaluation": {"test_cases": cases, "metrics": metrics},
    }
    unknown = parse_mapping(written)
    assert unknown.evaluation.metrics["cost_usd"].weight == 0
    (told,) = without_effect(unknown)
    assert "the price of a request" in told
    priced = {"prices": {"http": {"request": 0.002}}}
    for known in (priced, {"api": {**api, "response": {"cost_field": "usd"}}}):
        found = parse_mapping({**written, **known})
        assert found.evaluation.metrics["cost_usd"].weight == 0.1
        assert without_effect(found) == []
