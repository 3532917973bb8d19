"""Constraints between parameters."""

import operator
import string

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from convergence_core.config.expressions import MAX_DEPTH, MAX_LENGTH, parse


@pytest.mark.parametrize(
    ("text", "params", "holds"),
    [
        ("a <= b", {"a": 1, "b": 1}, True),
        ("a < b", {"a": 1, "b": 1}, False),
        ("a + b < 1", {"a": 0.5, "b": 0.4}, True),
        ("a - b * 2 >= -1", {"a": 1, "b": 1}, True),
        ("+a / 2 == 1.5", {"a": 3}, True),
        ("a // 2 == 1 and a % 2 == 1", {"a": 3}, True),
        ("0 < a <= 2", {"a": 2}, True),
        ("0 < a <= 2", {"a": 3}, False),
        ('not (model == "x" and t > 1)', {"model": "x", "t": 1.5}, False),
        ('not (model == "x" and t > 1)', {"model": "y", "t": 1.5}, True),
        ('model == "x" or t > 1', {"model": "y", "t": 1.5}, True),
        ('model in ["x", "y"]', {"model": "y"}, True),
        ('model not in ("x", "y")', {"model": "y"}, False),
        ("n in [1, 2]", {"n": 1.0}, True),
        ("n in [1, 2]", {"n": True}, False),
        ("stream", {"stream": True}, True),
        ("not stream", {"stream": True}, False),
        ("stream == True", {"stream": True}, True),
        ("stream == 1", {"stream": True}, False),
        ("stream != 1", {"stream": True}, True),
        ("(a < 1) == stream", {"a": 0, "stream": True}, True),
        ("stream and True", {"stream": True}, True),
    ],
)
def test_expressions_mean_what_they_say(text, params, holds):
    assert parse(text).evaluate(params) is holds


def multiples(n):
    return [i * (1 / n) for i in range(n + 1)]


def grid_of_numpy(n):
    return np.linspace(0, 1, n + 1).tolist()


@pytest.mark.parametrize("n", [3, 6, 7, 10, 100])
@pytest.mark.parametrize("steps", [multiples, grid_of_numpy])
@pytest.mark.parametrize(
    ("sign", "means"),
    [("<=", operator.le), ("==", operator.eq), (">=", operator.ge), ("<", operator.lt)],
)
def test_computed_steps_mean_what_written_steps_mean(sign, means, steps, n):
    constraint, values = parse(f"a + b {sign} 1"), steps(n)
    wrong = [
        (a, b)
        for i, a in enumerate(values)
        for j, b in enumerate(values)
        if constraint.evaluate({"a": a, "b": b}) is not means(i + j, n)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "params", "holds"),
    [
        ("a + b + c <= 1", {"a": 1 / 6, "b": 1 / 6, "c": 2 / 3}, True),
        ("7*a <= 1", {"a": 1 / 7}, True),
        ("3*a <= 2", {"a": 2 / 3}, True),
        ("a < b", {"a": 1e-7, "b": 1.0000000000001e-7}, True),
        ("a < b", {"a": 9007199254740991, "b": 9007199254740992.0}, True),
        ("a == b", {"a": 9007199254740991.0, "b": 9007199254740992.0}, False),
        ("a < b", {"a": 10**23, "b": 10**23 + 1}, True),
        ("a == 1e23", {"a": 10**23}, True),
        ("a < 1e-300", {"a": 1e-301}, True),
        ("a in [0.3]", {"a": 0.1 + 0.2}, True),
        ("a < 0.30000000000001", {"a": 0.3}, True),
    ],
)
def test_digits_beyond_fifteen_are_rounding_in_fractions_and_exact_in_whole_numbers(
    text, params, holds
):
    assert parse(text).evaluate(params) is holds


def test_a_constraint_on_an_inactive_parameter_does_not_apply():
    constraint = parse("top_p + temperature < 1")
    assert not constraint.applies({"temperature": 5})
    assert constraint.evaluate({"temperature": 5})


@pytest.mark.parametrize("text", ["a / 0 > 1", "b < 1", "a + b < 1", "-b == 1"])
def test_what_cannot_be_computed_does_not_hold(text):
    assert not parse(text).evaluate({"a": 10.0, "b": "text"})


def test_names_are_those_of_parameters():
    assert parse("  a + b < c  ").names == {"a", "b", "c"}
    assert str(parse("  a < 1 ")) == "a < 1"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("a <", "invalid syntax"),
        ("a < 1; b", "invalid syntax"),
        ("a = 1", "invalid syntax"),
        ("1 < 2", "names no parameter"),
        ("a + b", "not a condition"),
        ("not a + 1", "not a condition"),
        ("-a", "not a condition"),
        ('"text"', "not a condition"),
        ("a and 1", "not a condition"),
        ("[a]", "not a condition"),
        ("a ** 2 < 1", "a power"),
        ("a << 2 < 1", "a LShift"),
        ("~a < 1", "a UnaryOp"),
        ("len(a) < 1", "a call"),
        ("a.b < 1", "an attribute"),
        ("a[0] < 1", "an index"),
        ("(lambda: a) == 1", "a lambda"),
        ("(1 if a else 2) < 1", "if … else"),
        ('f"{a}" == "x"', "an f-string"),
        ("(b := a) < 1", "an assignment"),
        ("[x for x in a] == 1", "a ListComp"),
        ("a is None", "`is`"),
        ("a is 1", "`is`"),
        ("a == None", "None"),
        ("a == b'x'", "b'x'"),
        ("a < 1e999", "too large"),
        ("a in b", "needs a list"),
        ("a == [1]", "needs a list"),
        ("a in [[1]]", "right of `in`"),
        ("[1] == a", "right of `in`"),
        ("[a] + [1] < 2", "right of `in`"),
        ("a + (b < 1 and 2) < 1", "not a condition"),
        ("a == '\x00'", "null|control"),
        ("a == '\ud800'", "control"),
        ("a < " + "1" * MAX_LENGTH, "characters"),
        ("a < " + " + ".join("1" * 120), "parts|nested"),
        ("not " * 240 + "a", "nested"),
        ("-" * 990 + "a < 1", "nested"),
        ("(" * 300 + "a" + ")" * 300, "nested"),
        ("not " * MAX_DEPTH + "a", "nested deeper"),
        ("a in [" + ",".join("1" * 220) + "]", "parts"),
    ],
)
def test_anything_else_is_refused_with_a_reason(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse(text)


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet=string.printable, max_size=60)
    | st.lists(
        st.sampled_from(
            [
                "a",
                "b",
                "1",
                "'x'",
                "<",
                "==",
                "and",
                "not",
                "(",
                ")",
                "+",
                "*",
                "[",
                "]",
                "in",
                ",",
            ]
        ),
        max_size=15,
    ).map(" ".join)
)
def test_no_text_does_more_than_raise_a_value_error(text):
    try:
        expression = parse(text)
    except ValueError:
        return
    params = dict.fromkeys(expression.names, 3)
    assert expression.evaluate(params) in (True, False)


TENTHS = [k / 10 for k in range(11)]


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("a + b <= 0.3", lambda i, j: i + j <= 3),
        ("a + b < 0.3", lambda i, j: i + j < 3),
        ("a - b > 0.1", lambda i, j: i - j > 1),
        ("a + b == 1", lambda i, j: i + j == 10),
        ("a - b not in [0.1, 0.2]", lambda i, j: i - j not in (1, 2)),
        ("b * 3 != a", lambda i, j: 3 * j != i),
        ("a % 0.2 == 0.1", lambda i, j: i % 2 == 1),
        ("a // 0.1 == b * 10", lambda i, j: i == j),
        ("a / 3 * 3 == b", lambda i, j: i == j),
        ("-a % 0.3 == b", lambda i, j: -i % 3 == j),
    ],
)
def test_decimal_steps_are_compared_as_they_are_written(text, holds):
    expression = parse(text)
    for i, a in enumerate(TENTHS):
        for j, b in enumerate(TENTHS):
            assert expression.evaluate({"a": a, "b": b}) is holds(i, j), (a, b)
