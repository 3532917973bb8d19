import math

import pytest

from data.quickstart.metrics import ndcg_at_10


def ndcg(result: object, relevant: object) -> float:
    return ndcg_at_10({"result": result}, {"relevant": relevant}, None)


@pytest.mark.parametrize("rank", range(1, 13))
def test_one_relevant_name_is_worth_the_discount_of_its_rank(rank):
    result = [f"other{i}" for i in range(rank - 1)] + ["wanted"]
    expected = 1 / math.log2(rank + 1) if rank <= 10 else 0.0
    assert ndcg(result, ["wanted"]) == pytest.approx(expected, abs=1e-12)


def test_more_than_ten_relevant_names_can_still_reach_one():
    names = [f"n{i}" for i in range(14)]
    assert ndcg(names[4:], names) == 1.0


def test_a_repeated_name_gains_once_and_takes_one_rank():
    assert ndcg(["a", "a", "b"], ["a", "b"]) == ndcg(["a", "b"], ["a", "b"]) == 1.0


@pytest.mark.parametrize(
    "prediction", [{}, {"result": None}, {"result": "a"}, {"result": [1, None]}]
)
def test_an_answer_of_another_shape_gains_nothing(prediction):
    assert ndcg_at_10(prediction, {"relevant": ["a"]}, None) == 0.0


@pytest.mark.parametrize("relevant", [[], {}, {"a": 0}, {"a": 1, "b": -1}, {"a": math.nan}])
def test_a_case_without_usable_grades_is_an_error(relevant):
    with pytest.raises(ValueError, match="`relevant` must hold"):
        ndcg(["a"], relevant)
