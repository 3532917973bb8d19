import math

import pytest
from hypothesis import given, strategies as st

from data.quickstart.metrics import ndcg_at_10

NAMES = st.lists(st.sampled_from("abcdefghijklmnop"), max_size=15)
GRADES = st.dictionaries(
    st.sampled_from("abcdefghijklmnop"), st.integers(0, 3), min_size=1
).filter(lambda grades: any(grades.values()))


def ndcg(result: object, relevant: object) -> float:
    return ndcg_at_10({"result": result}, {"relevant": relevant}, None)


@pytest.mark.parametrize("rank", range(1, 13))
def test_one_relevant_name_is_worth_the_discount_of_its_rank(rank):
    result = [f"other{i}" for i in range(rank - 1)] + ["wanted"]
    expected = 1 / math.log2(rank + 1) if rank <= 10 else 0.0
    assert ndcg(result, ["wanted"]) == pytest.approx(expected, abs=1e-12)


def test_two_relevant_names_at_ranks_two_and_four():
    # DCG = 1/log2(3) + 1/log2(5), ideal = 1 + 1/log2(3).
    expected = (0.6309297535714575 + 0.43067655807339306) / 1.6309297535714575
    assert ndcg(["x", "a", "y", "b"], ["a", "b"]) == pytest.approx(expected, abs=1e-12)


def test_grades_are_gains():
    # DCG = 1 + 3/log2(3), ideal = 3 + 1/log2(3).
    expected = (1 + 3 * 0.6309297535714575) / (3 + 0.6309297535714575)
    assert ndcg(["b", "a"], {"a": 3, "b": 1, "c": 0}) == pytest.approx(expected, abs=1e-12)


def test_more_than_ten_relevant_names_can_still_reach_one():
    names = [f"n{i}" for i in range(14)]
    assert ndcg(names[4:], names) == 1.0


def test_a_repeated_name_gains_once_and_takes_one_rank():
    assert ndcg(["a", "a", "b"], ["a", "b"]) == ndcg(["a", "b"], ["a", "b"]) == 1.0


@given(NAMES, GRADES)
def test_lies_between_zero_and_one(result, grades):
    assert 0.0 <= ndcg(result, grades) <= 1.0


@given(GRADES)
def test_the_order_of_grades_is_ideal(grades):
    best = sorted(grades, key=lambda name: -grades[name])
    assert ndcg(best, grades) == pytest.approx(1.0, abs=1e-12)


@given(NAMES, st.sets(st.sampled_from("abcdefghijklmnop"), min_size=1))
def test_a_list_is_grades_of_one(result, relevant):
    assert ndcg(result, sorted(relevant)) == ndcg(result, dict.fromkeys(relevant, 1))


@pytest.mark.parametrize(
    "prediction", [{}, {"result": None}, {"result": "a"}, {"result": [1, None]}]
)
def test_an_answer_of_another_shape_gains_nothing(prediction):
    assert ndcg_at_10(prediction, {"relevant": ["a"]}, None) == 0.0


@pytest.mark.parametrize("relevant", [[], {}, {"a": 0}, {"a": 1, "b": -1}, {"a": math.nan}])
def test_a_case_without_usable_grades_is_an_error(relevant):
    with pytest.raises(ValueError, match="`relevant` must hold"):
        ndcg(["a"], relevant)
