"""OpenTelemetry spans of model calls as test cases, by the GenAI conventions."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from convergence_core.records import Json, sha256_hex
from tasks.inputs.foreign_cases.case_forms import (
    FieldNames,
    ForeignCase,
    SkippedCaseError,
    text_of,
    user_input,
)
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

OPERATIONS = ("chat", "generate_content", "text_completion", "invoke_agent")
"""Of ``gen_ai.operation.name``: those that ask a model something."""
AGENT = "gen_ai.agent.name"
DEFAULT_STRATUM = "agent"
"""The fact that traces are stratified by: the agent's name, else which instructions it had."""
_INDEXED = re.compile(
    r"(?:gen_ai\.prompt|llm\.input_messages)\.(\d+)\.(?:message\.)?(role|content)"
)
_ANSWERED = re.compile(r"(?:gen_ai\.completion|llm\.output_messages)\.0\.(?:message\.)?content")
_VALUES = ("stringValue", "boolValue", "doubleValue")


def spans_of(document: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    """Yield each span of a line with its attributes, those of its resource among them.

    Args:
        document: a request as the Collector's file exporter writes it (``resourceSpans``), or one span
            whose attributes are a mapping, as the console exporter writes it.
    """
    resources = document.get("resourceSpans", document.get("resource_spans"))
    if resources is None:
        attributes = document.get("attributes")
        yield document, attributes_of(attributes)
        return
    for resource in resources:
        shared = attributes_of((resource.get("resource") or {}).get("attributes"))
        for scope in resource.get("scopeSpans") or resource.get("scope_spans") or ():
            for span in scope.get("spans") or ():
                yield span, shared | attributes_of(span.get("attributes"))


def attributes_of(attributes: Any) -> dict[str, Any]:
    """Return attributes as a mapping, from OTLP's list of ``{key, value: {stringValue: …}}`` too."""
    if isinstance(attributes, Mapping):
        return dict(attributes)
    if not isinstance(attributes, Sequence):
        return {}
    return {one["key"]: _value(one.get("value")) for one in attributes if "key" in one}


def _value(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    for name in _VALUES:
        if name in value:
            return value[name]
    if "intValue" in value:  # a text: JSON's numbers may have 53 bits only
        return int(value["intValue"])
    if "arrayValue" in value:
        return [_value(one) for one in (value["arrayValue"] or {}).get("values") or ()]
    if "kvlistValue" in value:
        return attributes_of((value["kvlistValue"] or {}).get("values"))
    return None


def of_span(span: Mapping[str, Any], attributes: dict[str, Any], names: FieldNames) -> ForeignCase:
    """Return what a model call asked.

    Raises:
        SkippedCaseError: it is no model call, or holds no text that a person asked.
    """
    operation = attributes.get("gen_ai.operation.name")
    if operation is not None and operation not in OPERATIONS:
        named = one_line(str(operation), 40, redacted_text)
        raise SkippedCaseError(f"the operation {named} asks no model for an answer")
    told = _messages(span, attributes)
    if told is None:
        is_call = any(key.startswith(("gen_ai.", "llm.")) for key in attributes)
        reason = "a call without its messages: recording them is off by default"
        raise SkippedCaseError(reason if is_call else "a span that is no model call")
    asked = user_input(told)
    instructions = _instructions(told, attributes)
    agent = attributes.get(AGENT) or (
        f"instructions {sha256_hex(instructions)[:8]}" if instructions else "no instructions"
    )
    conversation = attributes.get("gen_ai.conversation.id", attributes.get("session.id"))
    return ForeignCase(
        input=asked,
        expected=_answer(span, attributes) if names.answers_as_expected else None,
        group=str(conversation) if conversation else None,
        facts={**attributes, DEFAULT_STRATUM: str(agent)},
    )


def _messages(span: Mapping[str, Any], attributes: Mapping[str, Any]) -> Any:
    """Return the messages of a call in any of the forms that are in use; ``None``: there are none."""
    for name in ("gen_ai.input.messages", "gen_ai.request.messages", "gen_ai.prompt"):
        if name in attributes:
            return _decoded(attributes[name])
    for event in _events(
        span, "gen_ai.content.prompt", "gen_ai.client.inference.operation.details"
    ):
        found = event.get("gen_ai.input.messages", event.get("gen_ai.prompt"))
        if found is not None:
            return _decoded(found)
    by_number: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        if (found := _INDEXED.fullmatch(key)) is not None:
            by_number.setdefault(int(found[1]), {})[found[2]] = value
    return [by_number[number] for number in sorted(by_number)] or None


def _events(span: Mapping[str, Any], *names: str) -> Iterator[dict[str, Any]]:
    for event in span.get("events") or ():
        if isinstance(event, Mapping) and event.get("name") in names:
            yield attributes_of(event.get("attributes"))


def _decoded(value: Any) -> Any:
    """Return messages that stand in a span as JSON text; another text is the one message."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError:  # cut off by a limit on attributes
        raise SkippedCaseError("messages that were cut off when they were recorded") from None
    return found["messages"] if isinstance(found, dict) and "messages" in found else found


def _instructions(told: Any, attributes: Mapping[str, Any]) -> str:
    found = attributes.get("gen_ai.system_instructions")
    if found is not None:
        return found if isinstance(found, str) else orjson.dumps(found).decode()
    if not isinstance(told, list):
        return ""
    return "\n".join(text_of(one) for one in told if one.get("role") in ("system", "developer"))


def _answer(span: Mapping[str, Any], attributes: Mapping[str, Any]) -> Json:
    found = attributes.get("gen_ai.output.messages")
    for event in _events(span, "gen_ai.content.completion"):
        found = found or event.get("gen_ai.completion")
    if found is None:
        keys = (key for key in attributes if _ANSWERED.fullmatch(key))
        return attributes.get(next(keys, ""))
    answer = _decoded(found)
    if isinstance(answer, list) and len(answer) == 1:
        (answer,) = answer
    return text_of(answer) if isinstance(answer, Mapping) else answer
