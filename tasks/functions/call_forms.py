"""Call forms: arguments of a user's function, by its signature."""

import inspect
from collections.abc import Mapping, Set as AbstractSet
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile
from typing import Any, TypeAlias

from convergence_core.errors import ConfigurationError, Problem
from convergence_core.records import Json, Params
from tasks.functions.user_functions import UserFunction, arguments_of, describe


class Whole(Enum):
    """Wholes that an argument can receive, with the argument names that request them."""

    INPUT = ("input", "inputs", "case_input", "case")
    PARAMS = ("params", "parameters", "settings", "config", "options")
    MERGED = ()
    """Fields of the input, overlaid by the parameters."""


_PLAIN = frozenset({"input", "params", "parameters"})
"""Names by which an optional argument also requests a whole."""

Source: TypeAlias = Whole | str
"""Value of an argument: a whole, or the parameter or input field of that name."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """Mapping from the case's input and the parameters to a function's arguments.

    Names decide first: those of parameters, of input fields and of ``Whole``, in any position. The
    other arguments get, by position, the input and then the parameters, or both merged into one
    dictionary.
    """

    by_position: tuple[Source, ...] = ()
    by_name: tuple[tuple[str, Source], ...] = ()
    rest: Whole | None = None
    """Whole for ``**keywords``, without the values of the other arguments."""

    def received(self, parameters: AbstractSet[str]) -> AbstractSet[str]:
        """Return the parameters that an argument receives, alone or in a whole."""
        sources = {*self.by_position, *(source for _, source in self.by_name), self.rest}
        return parameters if {Whole.PARAMS, Whole.MERGED} & sources else parameters & sources

    def arguments(
        self, case_input: Json, params: Params
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments of one call, as copies."""
        case_input, params = deepcopy((case_input, dict(params)))
        merged = merge(case_input, params)
        wholes = {Whole.INPUT: case_input, Whole.PARAMS: params, Whole.MERGED: merged}
        values: dict[Any, Any] = {"input": case_input, "params": params, **merged, **wholes}
        # If a case lacks a field, its argument and those after it keep their defaults.
        present = takewhile(values.__contains__, self.by_position)
        positional = tuple(values[source] for source in present)
        named = {name: values[source] for name, source in self.by_name if source in values}
        return positional, named if self.rest is None else {**values[self.rest], **named}


def merge(case_input: Json, params: Params) -> dict[str, Any]:
    """Return the case's input overlaid by the parameters, as the-convergence 0.1 does."""
    if isinstance(case_input, dict):
        return {**case_input, **params}
    return {"input": case_input, **params}


def call_form(
    function: UserFunction, parameters: AbstractSet[str], fields: AbstractSet[str], *, key: str
) -> CallForm:
    """Derive the call form of a function from its signature.

    Args:
        function: User's function.
        parameters: Names of all parameters of the search space.
        fields: Names of the fields of the cases' inputs.
        key: Configuration key, for errors.

    Raises:
        ConfigurationError: its arguments fit none of the forms.
    """
    signature = arguments_of(function)
    if signature is None:
        return CallForm((Whole.INPUT, Whole.PARAMS))
    shape = FunctionShape(signature)
    form = _form(shape, parameters, fields - parameters)
    if form is None:
        raise ConfigurationError([_signature_problem(function, shape, parameters | fields, key)])
    return form


class FunctionShape:
    """Arguments of a signature, by how a call can pass them."""

    def __init__(self, signature: Mapping[str, inspect.Parameter]) -> None:
        kinds = inspect.Parameter
        several = (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
        self.named = {n: p for n, p in signature.items() if p.kind not in several}
        self.required = [n for n, p in self.named.items() if p.default is kinds.empty]
        self.positional = [n for n, p in self.named.items() if p.kind is not kinds.KEYWORD_ONLY]
        self.keywords = [n for n, p in self.named.items() if p.kind is not kinds.POSITIONAL_ONLY]
        self.takes_any = any(p.kind is kinds.VAR_KEYWORD for p in signature.values())
        self.takes_more = any(p.kind is kinds.VAR_POSITIONAL for p in signature.values())

    def alone(self, bound: AbstractSet[str]) -> str | None:
        """Return the only required positional argument, if names bind all required keywords."""
        first = [name for name in self.required if name in self.positional]
        others = {*self.required} - {*first}
        return first[0] if len(first) == 1 and others <= bound else None

    def whole(self, whole: Whole, taken: AbstractSet[str]) -> str | None:
        """Return the argument whose name requests a whole; ``None`` if there is none.

        An optional argument whose name is not in `_PLAIN` keeps its default; but see `spare`.
        """
        asks = (n for n in whole.value if n in self.required or (n in _PLAIN and n in self.named))
        return next((name for name in asks if name not in taken), None)

    def spare(self, taken: AbstractSet[str]) -> str | None:
        """Return the argument for parameters that no other receives; ``None`` if there is none.

        Its name requests them, and its default is ``None`` or a mapping.
        """
        defaults = {n: self.named[n].default for n in Whole.PARAMS.value if n in self.named}
        empty = (n for n, given in defaults.items() if given is None or isinstance(given, Mapping))
        return next((name for name in empty if name not in taken), None)


def _form(
    shape: FunctionShape, parameters: AbstractSet[str], fields: AbstractSet[str]
) -> CallForm | None:
    bound = _by_names(shape, parameters, fields)
    alone, spare = shape.alone(bound.keys()), shape.spare(bound.keys())
    wholes = {source for source in bound.values() if isinstance(source, Whole)}
    if alone is not None and alone not in parameters | fields:
        if shape.takes_any:
            bound.setdefault(alone, Whole.PARAMS if Whole.INPUT in wholes else Whole.INPUT)
        elif not bound.keys() - {alone} and (alone != "input" or spare is None):
            bound[alone] = Whole.MERGED
    left = [name for name in shape.required if name not in bound]
    if left:
        needed = {bound[name] for name in shape.required if name in bound}
        no_field, no_parameter = needed.isdisjoint(fields), needed.isdisjoint(parameters)
        by_name = Whole.PARAMS in wholes or not parameters.isdisjoint(shape.named)
        if len(left) == 1 and Whole.INPUT not in wholes and no_field and by_name:
            bound[left[0]] = Whole.INPUT
        elif len(left) == 1 and wholes == {Whole.INPUT} and no_parameter:
            bound[left[0]] = Whole.PARAMS
        elif left == shape.positional[:2] and not needed and not wholes:
            bound |= zip(left, (Whole.INPUT, Whole.PARAMS), strict=True)
        else:
            return None
    elif not bound and not shape.takes_any:
        return CallForm((Whole.INPUT, Whole.PARAMS)) if shape.takes_more else None
    passed = {Whole.MERGED, Whole.PARAMS, *parameters} & {*bound.values()}
    if spare is not None and not passed and not shape.takes_any:
        bound[spare] = Whole.PARAMS
    return _call(shape, bound, alone)


def _by_names(
    shape: FunctionShape, parameters: AbstractSet[str], fields: AbstractSet[str]
) -> dict[str, Source]:
    known = parameters | fields
    if {"input", "params"} <= shape.named.keys():
        known = known - {"input", "params"}  # together, they mean the wholes
    bound: dict[str, Source] = {name: name for name in shape.named if name in known}
    for whole in (Whole.INPUT, Whole.PARAMS):
        asks = shape.whole(whole, bound.keys())
        if asks is not None:
            bound[asks] = whole
    return bound


def _call(shape: FunctionShape, bound: Mapping[str, Source], alone: str | None) -> CallForm:
    first = 0
    for name in shape.positional:
        if name not in bound or (name in shape.keywords and not isinstance(bound[name], Whole)):
            break
        first += 1
    by_position = shape.positional[:first]
    by_name = tuple((n, bound[n]) for n in shape.named if n in bound and n not in by_position)
    rest = None
    if shape.takes_any and not {Whole.INPUT, Whole.PARAMS} <= {*bound.values()}:
        is_spread = alone is not None and bound[alone] is Whole.INPUT
        rest = Whole.PARAMS if is_spread else Whole.MERGED
    return CallForm(tuple(bound[name] for name in by_position), by_name, rest)


def _signature_problem(
    function: UserFunction, shape: FunctionShape, known: AbstractSet[str], key: str
) -> Problem:
    names = ", ".join(shape.named)
    return Problem(
        key=key,
        rule="must take (input, params), one merged dictionary, or parameters and input fields by name",
        value=f"{describe(function)} with {f'the arguments ({names})' if names else 'no argument'}",
        fix="Write `def f(input, params): …`, or name each argument `input`, `params` or as one of "
        f"{', '.join(sorted(known))}.",
    )  # fmt: skip
