"""``RunResult``: its JSON is all of it."""

import json
from dataclasses import replace

import pytest

from convergence_core.records import Params
from convergence_core.result import RunResult
from tasks.report.blocks import Grid, code
from tasks.report.document import document
from tests.support.results import bare_result, failed_result, made_up_result


@pytest.mark.parametrize("make", [made_up_result, bare_result, failed_result])
def test_json_rebuilds_an_equal_result(make):
    result = make()
    assert RunResult.from_json(result.to_json()) == result
    assert RunResult.from_json(json.dumps(result.to_json())) == result


def test_parameters_keep_their_types():
    result = made_up_result()
    assert result.winner is not None
    params: Params = {"a": 1, "b": 1.0, "c": True, "d": "1", "e": 0, "f": False}
    result = replace(result, winner=replace(result.winner, params=params))
    again = RunResult.from_json(json.dumps(result.to_json()))
    assert again.winner is not None
    assert [(type(v), v) for v in again.winner.params.values()] == [
        (type(params[name]), params[name]) for name in sorted(params)
    ]


def test_a_change_from_1_to_true_is_a_row_of_the_report():
    result = made_up_result()
    assert result.winner is not None
    assert result.baseline is not None
    result = replace(
        result,
        winner=replace(result.winner, params={"a": True, "same": 1}),
        baseline=replace(result.baseline, params={"a": 1, "same": 1.0}),
    )
    (grid,) = [block for block in document(result) if isinstance(block, Grid)][:1]
    names = [row[0] for row in grid.rows]
    assert code("a") in names
    assert code("same") not in names


def test_the_headline_is_the_most_trustworthy_estimate():
    winner = made_up_result().winner
    assert winner is not None
    assert winner.headline() == ("holdout", winner.holdout)
    assert replace(winner, holdout=None).headline() == ("fresh", winner.fresh)
    assert replace(winner, holdout=None, fresh=None).headline() == ("search", winner.search)
    with pytest.raises(ValueError, match="has no estimate"):
        replace(winner, holdout=None, fresh=None, search=None).headline()


def test_the_level_is_that_of_the_winners_interval():
    result = made_up_result()
    assert result.winner is not None
    assert result.winner.search is not None
    winner = replace(result.winner, search=replace(result.winner.search, level=0.9))
    assert replace(result, winner=winner).level == 0.9
    assert failed_result().level == 0.95
