"""Call forms: what a user's function takes, by its signature."""

import inspect
from collections.abc import Mapping, Set as AbstractSet
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from convergence_core.errors import ConfigurationError, Problem
from convergence_core.records import Json, Params
from tasks.functions.user_functions import UserFunction, arguments_of, describe

_WHOLES = frozenset({"input", "params"})
"""Names under which a function can have the whole input and all parameters."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """How a function wants the case's input and the parameters.

    ``keywords``: each by its name (version 0.1's form); ``split``: ``f(input, params)``;
    ``merged``: ``f({**input, **params})``; ``spread``: ``f(input, **params)``.
    """

    kind: Literal["keywords", "split", "merged", "spread"]
    accepted: frozenset[str] | None = None
    """Names of keywords it takes; ``None`` means all."""
    alias: tuple[str, Literal["input", "params"]] | None = None
    """The function's name for the input or the parameters, and which of them it means."""

    def arguments(
        self, case_input: Json, params: Params
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and the keyword arguments of one call, for it to change."""
        case_input, params = deepcopy((case_input, dict(params)))
        if self.kind == "split":
            return (case_input, params), {}
        if self.kind == "spread":
            return (case_input,), self._accept(params)
        merged = merge(case_input, params)
        if self.kind == "merged":
            return (merged,), {}
        wholes: dict[str, Any] = {"input": case_input, "params": params}
        if self.accepted is not None:
            merged = {**wholes, **merged}
        if self.alias is not None:
            name, whole = self.alias
            merged = {name: wholes[whole], **merged}
        return (), self._accept(merged)

    def _accept(self, keywords: dict[str, Any]) -> dict[str, Any]:
        if self.accepted is None:
            return keywords
        return {name: value for name, value in keywords.items() if name in self.accepted}


def merge(case_input: Json, params: Params) -> dict[str, Any]:
    """Return the case's input overlaid by the parameters, as the-convergence 0.1 sends it."""
    if isinstance(case_input, dict):
        return {**case_input, **params}
    return {"input": case_input, **params}


def call_form(function: UserFunction, known: AbstractSet[str], *, key: str) -> CallForm:
    """Find out how a function wants to be called, by its signature.

    Args:
        function: the function.
        known: names of all parameters and of the fields of the cases' inputs.
        key: configuration key, for errors.

    Raises:
        ConfigurationError: its arguments fit none of the forms.
    """
    parameters = arguments_of(function)
    if parameters is None:
        return CallForm("split")
    shape = _Shape(parameters)
    form = _form(shape, known)
    if form is None:
        raise ConfigurationError([_signature_problem(function, shape, known, key)])
    return form


def _form(shape: "_Shape", known: AbstractSet[str]) -> CallForm | None:
    positional = shape.required_positional
    is_plain = not shape.required_keywords
    if positional != ("input", "params") and shape.is_keywords(known):
        return CallForm("keywords", None if shape.takes_any else shape.names)
    if len(positional) == 1 and shape.required_keywords <= known:
        return _single_argument_form(shape, known)
    if (alias := shape.alias(known)) is not None:
        return CallForm("keywords", None if shape.takes_any else shape.names, alias)
    splits = len(positional) == 2 or (not positional and shape.takes_positionals)
    return CallForm("split") if splits and is_plain else None


def _single_argument_form(shape: "_Shape", known: AbstractSet[str]) -> CallForm:
    if shape.takes_any:
        return CallForm("spread")
    if shape.required_keywords or shape.optional & known:
        return CallForm("spread", shape.names - set(shape.required_positional))
    return CallForm("merged")


class _Shape:
    """The arguments of a signature, sorted by how they can be given."""

    def __init__(self, parameters: Mapping[str, inspect.Parameter]) -> None:
        kinds = inspect.Parameter
        named = {
            n: p
            for n, p in parameters.items()
            if p.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
        }
        required = {n for n, p in named.items() if p.default is kinds.empty}
        positional = [n for n, p in named.items() if p.kind is not kinds.KEYWORD_ONLY]
        self.names = frozenset(n for n, p in named.items() if p.kind is not kinds.POSITIONAL_ONLY)
        self.required_positional = tuple(n for n in positional if n in required)
        self.required_keywords = frozenset(required - set(positional))
        self.optional = frozenset(named) - required
        self.takes_any = any(p.kind is kinds.VAR_KEYWORD for p in parameters.values())
        self.takes_positionals = len(positional) >= 2 or any(
            p.kind is kinds.VAR_POSITIONAL for p in parameters.values()
        )
        self._only_by_position = (
            len(positional) and parameters[positional[0]].kind is kinds.POSITIONAL_ONLY
        )

    def alias(self, known: AbstractSet[str]) -> tuple[str, Literal["input", "params"]] | None:
        """Return the one required name beside known ones, and what it stands for; ``None``: none does."""
        required = {*self.required_positional} | self.required_keywords
        others = required - known - _WHOLES
        if self._only_by_position or len(others) != 1 or len(required) == 1:
            return None
        (name,) = others
        if len(required) == 2 and required & _WHOLES:
            return name, "params" if "input" in required else "input"
        return (name, "input") if [name] == [*self.required_positional][:1] else None

    def is_keywords(self, known: AbstractSet[str]) -> bool:
        """Whether the arguments can all be given by name."""
        available = known | _WHOLES
        required = set(self.required_positional) | self.required_keywords
        if self._only_by_position or not required <= available:
            return False
        if required & known or len(required) == 2:
            return True
        return not required and bool(self.takes_any or self.optional & available)


def _signature_problem(
    function: UserFunction, shape: _Shape, known: AbstractSet[str], key: str
) -> Problem:
    available = known | _WHOLES
    required = [*shape.required_positional, *sorted(shape.required_keywords)]
    unknown = [name for name in required if name not in available]
    arguments = f"the arguments ({', '.join(required)})" if required else "no known argument"
    return Problem(
        key=key,
        rule="must take (input, params), one merged dictionary, or parameters and input fields by name",
        value=f"{describe(function)} with {arguments}",
        fix=f"No parameter and no input field is called {', '.join(unknown)}; known are "
        f"{', '.join(sorted(available))}." if unknown else "Write `def f(input, params): …`.",
    )  # fmt: skip
