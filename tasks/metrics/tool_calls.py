"""Metrics of tool calls: names, arguments, number, forbidden tools."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

import numpy as np

from convergence_core.config.evaluation import (
    AnswerMetric,
    CasedMetric,
    ExpectingMetric,
    TextMetric,
    ToolAllowedMetric,
)
from convergence_core.errors import EvaluatorFault
from convergence_core.records import Case, Json, Params, Reply
from tasks.json_values import MISSING, field_of, json_in
from tasks.metrics.comparisons import equal
from tasks.metrics.metrics import judged_value

ToolCall: TypeAlias = tuple[str, Mapping[str, Json]]
"""Tool name and arguments: for an expected call only those that matter; empty if unreadable."""
CALLS = "tool_calls"
"""Default field of the calls, in answers and in expected values."""
_WRAPPERS: Final = ("function", "functionCall", "function_call")
_ARGUMENTS: Final = ("arguments", "args", "input", "parameters")
_KNOWN: Final = {"name", *_ARGUMENTS, "id", "call_id", "index", "type", "status"}


def tool_calls_of(listed: Json) -> list[ToolCall]:
    """Return the valid calls of a list, in order.

    An entry is a name, ``{name, arguments}`` (also ``args``, ``input`` and ``parameters``), or
    either under ``function`` or ``functionCall``; arguments may be a JSON string.
    """
    calls = []
    for entry in listed if isinstance(listed, list) else []:
        shown = _inner(entry)
        name = shown.get("name")
        if isinstance(name, str) and name:
            calls.append((name, _arguments(shown) or {}))
    return calls


def _inner(entry: Json) -> dict[str, Json]:
    if not isinstance(entry, dict):
        return {"name": entry}
    inner = next((entry[key] for key in _WRAPPERS if key in entry), entry)
    return inner if isinstance(inner, dict) else {}


def _arguments(shown: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """Return the arguments of a call; ``None`` if they are unreadable."""
    given = next((shown[key] for key in _ARGUMENTS if shown.get(key) not in (None, "")), {})
    found = json_in(given) if isinstance(given, str) else given
    if found == []:
        return {}  # PHP's empty mapping
    return found if isinstance(found, dict) else None


def expected_problem(listed: Json) -> str | None:
    """Return the rule that a case's listed calls break; ``None`` if they are valid."""
    n = len(listed) if isinstance(listed, list) else -1
    for entry in listed if isinstance(listed, list) else ():
        shown = _inner(entry)
        keys = shown.keys() | (entry.keys() - {*_WRAPPERS} if isinstance(entry, dict) else set())
        is_unclear = not shown.keys() & {*_ARGUMENTS} and keys - _KNOWN
        if len(keys & {*_ARGUMENTS}) > 1 or is_unclear or _arguments(shown) is None:
            n = -1
    if len(tool_calls_of(listed)) == n:
        return None
    return "must be a list of names or of `{name: …, arguments: {…}}`"


@dataclass(frozen=True, slots=True)
class ToolMetric:
    """Metric of the tool calls of an answer."""

    name: str
    """Key under ``evaluation.metrics``."""
    config: AnswerMetric
    """Configuration of a type that begins with ``tool_``."""

    async def measure(self, reply: Reply, case: Case, params: Params) -> float:  # noqa: ARG002 - protocol
        """Return the number; an answer without calls counts as zero calls.

        Raises:
            CandidateFault: the answer lacks the metric's ``field``.
            EvaluatorFault: the case has no valid expected calls.
        """
        made, config = self._made(reply.value), self.config
        if not isinstance(config, ExpectingMetric):
            return float(len(made))
        if isinstance(config, ToolAllowedMetric):
            refused = [*config.forbidden, *_named(case, config.expected_field)]
            return float(not any(fnmatchcase(call, name) for call, _ in made for name in refused))
        expected = self._expected(case, config.expected_field or CALLS)
        if isinstance(config, TextMetric):
            return arguments(made, expected, config)
        return choice(made, expected)

    def _made(self, value: Json) -> list[ToolCall]:
        if self.config.field is not None:
            return tool_calls_of(judged_value(self.name, value, self.config.field))
        calls = field_of(value, CALLS)
        return [] if calls is MISSING else tool_calls_of(calls)

    def _expected(self, case: Case, path: str) -> list[ToolCall]:
        expected = field_of(case.expected, path)
        if expected is MISSING:
            raise EvaluatorFault(
                f"metric `{self.name}`: the case expects no `{path}`. Write the calls there, `[]` "
                "for none, or name another `expected_field`.",
                error_type="no_expected_calls",
            )
        if (wrong := expected_problem(expected)) is not None:
            raise EvaluatorFault(
                f"metric `{self.name}`: `{path}` of the case {wrong}",
                error_type="bad_expected_calls",
            )
        return tool_calls_of(expected)


def _named(case: Case, path: str | None) -> list[str]:
    """Return the forbidden tools of the case itself."""
    names = MISSING if path is None else field_of(case.expected, path)
    return [] if names is MISSING else [name for name, _ in tool_calls_of(names)]


def choice(made: Sequence[ToolCall], expected: Sequence[ToolCall]) -> float:
    """Return the F1 score of the called tool names against the expected ones, with multiplicity.

    It is 1 if no call was expected or made; order does not matter.
    """
    if not made and not expected:
        return 1.0
    common = Counter(name for name, _ in made) & Counter(name for name, _ in expected)
    return 2.0 * common.total() / (len(made) + len(expected))


def arguments(
    made: Sequence[ToolCall], expected: Sequence[ToolCall], config: CasedMetric
) -> float:
    """Return the share of expected calls that were made with every expected argument.

    Further arguments do not matter. It is 1 if no call is expected.
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - slow to import

    if not expected or not made:
        return float(not expected)
    # Each call matches one expected call: this maximizes the pairs.
    agree = np.array([[_agree(call, wanted, config) for call in made] for wanted in expected])
    return float(agree[linear_sum_assignment(agree, maximize=True)].sum()) / len(expected)


def _agree(call: ToolCall, wanted: ToolCall, config: CasedMetric) -> bool:
    (name, given), (wanted_name, expected) = call, wanted
    return name == wanted_name and all(
        key in given and equal(given[key], value, config) for key, value in expected.items()
    )
