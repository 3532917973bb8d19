"""A configuration is a frozen value that survives JSON."""

import json

import pytest

from convergence_core.config import Configuration, parse_configuration, parse_stored
from tests.support.config_examples import EXAMPLES


@pytest.fixture(params=list(EXAMPLES))
def configuration(request: pytest.FixtureRequest) -> Configuration:
    return parse_configuration(EXAMPLES[request.param], file="f.yaml")


def test_json_rebuilds_an_equal_configuration(configuration):
    again = parse_stored(configuration.to_json())
    assert again == configuration
    assert again.to_json() == configuration.to_json()


def test_choices_keep_their_types(configuration):
    again = parse_stored(configuration.to_json())
    for name, parameter in configuration.search_space.parameters.items():
        if parameter.type == "categorical":
            other = again.search_space.parameters[name]
            assert other.type == "categorical"
            assert [type(c) for c in other.choices] == [type(c) for c in parameter.choices]


def test_parameters_keep_the_order_they_were_written_in():
    text = """
api: {name: a, function: "m:f"}
search_space: {parameters: {z: {type: boolean}, a: {type: boolean}, m: {type: boolean}}}
evaluation: {test_cases: [{input: 1, expected: 1}], metrics: {exact_match: {}}}
"""
    again = parse_stored(parse_configuration(text).to_json())
    assert list(again.search_space.parameters) == ["z", "a", "m"]


def test_a_stored_configuration_opens_without_the_keys_that_this_version_lacks():
    now = parse_configuration(EXAMPLES["function"])
    then = json.loads(now.to_json())
    then["api"]["response"]["result_required"] = False
    then["society"]["rlp"]["gamma"] = 0.99
    for metric in then["evaluation"]["metrics"].values():
        metric["strip"] = True
    then["output"]["formats"].insert(1, "pdf")
    assert parse_stored(json.dumps(then)) == now
