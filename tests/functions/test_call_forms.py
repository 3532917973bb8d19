"""How a function is called, by its signature."""

import functools
import inspect

import pytest

from convergence_core.errors import ConfigurationError
from tasks.functions.call_forms import call_form
from tests.support.sessions import ask_function

# ruff: noqa: A006 - `input` is the documented name

INPUT, PARAMS = {"x": 3}, {"k": 2}
BOTH = [INPUT, PARAMS]
MERGED = {**INPUT, **PARAMS}


def signature(function):
    return str(inspect.signature(function)) if callable(function) else None


def by_any_names(**everything):
    return everything


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        # By position: the input, then the parameters.
        (lambda case_input, params: [case_input, params], BOTH),
        (lambda input, params: [input, params], BOTH),
        (lambda a, b: [a, b], BOTH),
        (lambda a, b, /: [a, b], BOTH),
        (lambda a, b, k=77: [a, b, k], [*BOTH, 2]),
        (lambda *both: list(both), BOTH),
        (lambda everything: everything, MERGED),
        (lambda input: input, MERGED),
        (lambda everything, other=5: [everything, other], [MERGED, 5]),
        # By the names of parameters and of input fields.
        (lambda x, k: [x, k], [3, 2]),
        (lambda k, x: [x, k], [3, 2]),
        (lambda x, k, /: [x, k], [3, 2]),
        (lambda x, k=7, other="o": [x, k, other], [3, 2, "o"]),
        (lambda x=0, k=7: [x, k], [3, 2]),
        (by_any_names, MERGED),
        (lambda x, **more: [x, more], [3, PARAMS]),
        (functools.partial(lambda client, x, k: [client, x, k], "client"), ["client", 3, 2]),
        # By the names of the wholes, in any place, with and without defaults.
        (lambda input, params=None: [input, params], BOTH),
        (lambda input=None, params=None: [input, params], BOTH),
        (lambda params, input: [input, params], BOTH),
        (lambda input, *, params: [input, params], BOTH),
        (lambda input, params, k=77: [input, params, k], [*BOTH, 2]),
        (lambda input, params, **more: [input, params, more], [*BOTH, {}]),
        (lambda params, input, **more: [input, params, more], [*BOTH, {}]),
        (lambda x, params: [x, params], [3, PARAMS]),
        (lambda x, settings: [x, settings], [3, PARAMS]),
        (lambda config, text: [text, config], BOTH),
        (lambda text, parameters=None: [text, parameters], BOTH),
        # Other names with defaults keep them: the function takes one dictionary, as without them.
        (lambda d, config=None: [d, config], [MERGED, None]),
        (lambda d, options={}: [d, options], [MERGED, {}]),
        (lambda d, settings=None, debug=False: [d, settings, debug], [MERGED, None, False]),
        (lambda d, *, config=None: [d, config], [MERGED, None]),
        (lambda d, case=None: [d, case], [MERGED, None]),
        (lambda d, case_input=None, inputs=None: [d, case_input, inputs], [MERGED, None, None]),
        (lambda text, k, options=None: [text, k, options], [INPUT, 2, None]),
        (lambda text, config="a.ini": [text, config], [MERGED, "a.ini"]),
        (lambda input, config="a.ini": [input, config], [MERGED, "a.ini"]),
        (lambda x, config="a.ini": [x, config], [3, "a.ini"]),
        (lambda x, k, config=None: [x, k, config], [3, 2, None]),
        (lambda input, k, config=None: [input, k, config], [INPUT, 2, None]),
        (lambda case, config=None: [case, config], [MERGED, None]),
        (lambda x, config=None, **more: [x, config, more], [3, None, PARAMS]),
        (lambda input, config=None, **more: [input, config, more], [INPUT, None, PARAMS]),
        # They get the parameters where nothing else does.
        (lambda x, options=None: [x, options], [3, PARAMS]),
        (lambda x, config=None, /: [x, config], [3, PARAMS]),
        (lambda x, *, settings={}: [x, settings], [3, PARAMS]),
        (lambda x, other="o", config=None: [x, other, config], [3, "o", PARAMS]),
        (lambda x, settings="s", config=None: [x, settings, config], [3, "s", PARAMS]),
        (lambda x=0, config=None: [x, config], [3, PARAMS]),
        (lambda input, config=None: [input, config], BOTH),
        (lambda input, /, config=None: [input, config], BOTH),
        (lambda input, *, options={}: [input, options], BOTH),
        (lambda input, flag=True, config=None: [input, flag, config], [INPUT, True, PARAMS]),
        (lambda input, x, config=None: [input, x, config], [INPUT, 3, PARAMS]),
        (lambda input=None, config=None: [input, config], BOTH),
        (lambda config=None, input=None: [input, config], BOTH),
        # What names leave over.
        (lambda settings, input: [input, settings], BOTH),
        (lambda params, case: [case, params], BOTH),
        (lambda anything, input: [input, anything], BOTH),
        (lambda text, k: [text, k], [INPUT, 2]),
        (lambda k, text: [text, k], [INPUT, 2]),
        (lambda k, text, /: [text, k], [INPUT, 2]),
        (lambda text, k=5: [text, k], [INPUT, 2]),
        (lambda case_input, *, k: [case_input, k], [INPUT, 2]),
        (lambda text, k, **more: [text, k, more], [INPUT, 2, INPUT]),
        (lambda case_input, **params: [case_input, params], BOTH),
        (lambda input, /, **params: [input, params], BOTH),
        (lambda text, *, k, **more: [text, k, more], [INPUT, 2, {}]),
    ],
    ids=signature,
)
def test_each_call_form_gets_input_and_parameters(function, expected):
    assert ask_function(function).value == expected


@pytest.mark.parametrize(
    "function",
    [
        lambda: 1,
        lambda x, k, colour: 1,
        lambda colour, x, k: 1,
        lambda x, colour: 1,
        lambda a, k, b: 1,
        lambda a, b, c: 1,
        lambda input, k, colour: 1,
        lambda colour=None, size=None: 1,
        lambda *, colour: 1,
    ],
    ids=signature,
)
def test_a_signature_that_leaves_a_doubt_is_a_problem_with_its_names_and_the_fix(function):
    with pytest.raises(ConfigurationError) as caught:
        call_form(function, {"k"}, {"x"}, key="api.function")
    (problem,) = caught.value.problems
    assert all(name in problem.value for name in function.__code__.co_varnames)
    assert problem.fix == (
        "Write `def f(input, params): …`, or name each argument `input`, `params` or as one of k, x."
    )


@pytest.mark.parametrize(
    ("function", "received"),
    [
        (lambda x: x, set()),
        (lambda x, config="a.ini": x, set()),
        (lambda x, *more: x, set()),
        (lambda x, k: x, {"k"}),
        (lambda x, *, j=1: x, {"j"}),
        (lambda x, k, params=None: x, {"j", "k"}),
        (lambda x, k, **more: x, {"j", "k"}),
        (lambda text, params: text, {"j", "k"}),
        (lambda everything: everything, {"j", "k"}),
        (print, {"j", "k"}),
    ],
    ids=signature,
)
def test_a_form_tells_which_parameters_the_function_receives(function, received):
    form = call_form(function, {"j", "k"}, {"x"}, key="api.function")
    assert form.received({"j", "k"}) == received


def test_parameters_overlay_the_input():
    assert ask_function(by_any_names, params={"x": 9}).value == {"x": 9}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda input, k: [input, k], ["q", 2]),
        (lambda input, config=None: [input, config], ["q", PARAMS]),
        (lambda input, params: [input, params], [{"input": "q"}, PARAMS]),
    ],
    ids=signature,
)
def test_a_field_of_the_name_input_is_given_unless_both_wholes_are_named(function, expected):
    form = call_form(function, {"k"}, {"input"}, key="api.function")
    positional, named = form.arguments({"input": "q"}, PARAMS)
    assert function(*positional, **named) == expected


def test_the_input_of_a_case_is_not_changed_by_a_function_that_changes_its_parameters():
    params = {"k": 2}

    def changes(case_input, params):
        params.clear()
        return 1

    ask_function(changes, params=params)
    assert params == {"k": 2}
