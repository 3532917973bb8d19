"""Mock of an HTTP endpoint: a chat whose answer takes the endpoint's form."""

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from convergence_core.config import Configuration
from convergence_core.config.evaluation import ExpectingMetric
from convergence_core.records import Case, Json, Params
from tasks.http.request_templates import Values
from tasks.json_values import Missing, answers_of, as_text, field_of, mapping, parse_path
from tasks.metrics.metrics import BUILT_IN_METRICS

_USD_PER_TOKEN = 1e-6
"""Invented price, for answers that report their cost."""


class EndpointMock:
    """Adapter between an endpoint's requests and a mock server.

    Args:
        url: Root of the mock server.
        configuration: Configuration of kind ``http``; its metrics determine the answer's fields.
        cases: Test cases whose ``expected`` determines the types of the fields.
        schemas: JSON Schemas by metric.
    """

    def __init__(
        self,
        url: str,
        configuration: Configuration,
        cases: Sequence[Case],
        schemas: Mapping[str, Json],
    ) -> None:
        self.url = f"{url}/v1/chat/completions"
        self._api = configuration.api
        self._field_to_schema = _fields(configuration, cases, schemas)

    def request(self, params: Params, case: Case) -> dict[str, Json]:
        """Return the chat request: input as user message, string parameters as system message."""
        values = Values(params, case.input)
        named = [values.parameter(name) for name, text in params.items() if isinstance(text, str)]
        texts = [as_text(text) for text in named if not isinstance(text, Missing)]
        heat = params.get("temperature")
        body: dict[str, Json] = {
            "model": str(params.get("model") or self._api.name),
            "temperature": min(2.0, max(0.0, heat)) if isinstance(heat, (int, float)) else 0.0,
            "messages": [
                {"role": "system", "content": "\n".join(texts) or self._api.description},
                {"role": "user", "content": as_text(case.input)},
            ],
        }
        if self._field_to_schema:
            schema: Json = {"type": "object", "properties": self._field_to_schema}
            named_schema: Json = {"name": "result", "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": named_schema}
        return body

    def answer(self, completion: Any) -> Json:
        """Convert a chat's answer to the endpoint's."""
        text, usage = completion["choices"][0]["message"]["content"], completion["usage"]
        result: Json = text
        if self._field_to_schema:
            result = {}
            for path, value in json.loads(text).items():
                result = _placed(result, path, value)
        response = self._api.response
        answer = _placed({}, response.result_field or "result", result)
        if response.cost_field is None:
            return answer
        return _placed(answer, response.cost_field, usage["total_tokens"] * _USD_PER_TOKEN)


def _fields(
    configuration: Configuration, cases: Sequence[Case], metric_to_schema: Mapping[str, Json]
) -> dict[str, Json]:
    """Return the schemas of a result's fields by dotted path; empty for a string result."""
    field_to_values: dict[str, list[Json]] = {}
    schemas: dict[str, Json] = {}
    for name, metric in configuration.evaluation.metrics.items():
        if metric.type in BUILT_IN_METRICS or metric.type.startswith("tool_"):
            continue
        place = path = None
        if isinstance(metric, ExpectingMetric):
            place, path = metric.field, metric.expected_field
        for case in cases:
            expected = field_of(case.expected, path) if path else case.expected
            if place is not None:
                known = [] if isinstance(expected, Missing) else answers_of(expected)
                field_to_values.setdefault(place, []).extend(known)
            elif isinstance(expected, dict):
                for field, value in expected.items():
                    field_to_values.setdefault(field, []).append(value)
        schema = metric_to_schema.get(name)
        if place is None and isinstance(schema, dict):
            schemas |= mapping(schema.get("properties"))
    return schemas | {field: _schema(values) for field, values in field_to_values.items()}


def _schema(values: Sequence[Json]) -> dict[str, Json]:
    """Return a schema that fits the cases' values."""
    first = next((value for value in values if value is not None), "")
    if isinstance(first, str):
        options = sorted({value for value in values if isinstance(value, str)})
        # If each case has a different value, the values are free answers and not classes.
        return {"type": "string", **({"enum": [*options]} if len(options) < len(values) else {})}
    if isinstance(first, dict):
        return {"type": "object", "properties": {k: _schema([v]) for k, v in first.items()}}
    if isinstance(first, list):
        return {"type": "array", "items": _schema(first)}
    kinds: dict[type, str] = {bool: "boolean", int: "integer"}
    return {"type": kinds.get(type(first), "number")}


def _placed(tree: Json, path: str, value: Json) -> Json:
    """Return a tree with a value at a dotted path, where ``pick`` reads it."""
    for part in reversed(parse_path(path)):
        value = [*[None] * max(part, 0), value] if isinstance(part, int) else {part: value}
    return _merged(tree, value)


def _merged(left: Json, right: Json) -> Json:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        both = {name: _merged(left[name], right[name]) for name in left.keys() & right.keys()}
        return {**left, **right, **both}
    if isinstance(left, list) and isinstance(right, list):
        return [_merged(*pair) for pair in zip_longest(left, right)]
    return left if right is None else right
