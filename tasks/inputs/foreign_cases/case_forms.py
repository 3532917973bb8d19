"""Rows of datasets of other tools as test cases."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convergence_core.records import Json

AS_TEXT = ("text", "input_text", "output_text")
"""Types of a message's parts that hold text."""


class SkippedCaseError(ValueError):
    """A row is no test case; the text is the reason, which is counted."""


@dataclass(frozen=True, slots=True)
class ForeignCase:
    """One test case of another tool."""

    input: Json
    expected: Json = None
    """``None`` if it has none."""
    case_id: str | None = None
    group: str | None = None
    """Name of what it was part of, such as a conversation."""
    description: str = ""
    tags: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What cases may be stratified by."""
    not_carried: tuple[str, ...] = ()
    """What the row says that a test case has no place for."""

    def as_json(self) -> dict[str, Json]:
        """Return the mapping that a file of test cases holds."""
        fields: dict[str, Json] = {}
        if self.case_id is not None:
            fields["id"] = self.case_id
        fields["input"] = self.input
        if self.expected is not None:
            fields["expected"] = self.expected
        if self.group is not None:
            fields["group"] = self.group
        if self.tags:
            fields["tags"] = list(self.tags)
        if self.description:
            fields["description"] = self.description
        return fields


@dataclass(frozen=True, slots=True)
class FieldNames:
    """Which fields of a row are asked and expected, where the user says it."""

    inputs: tuple[str, ...] = ()
    """Several: the input is a mapping of them. None: as the tool has it."""
    expected: str | None = None
    answers_as_expected: bool = False
    """Take what production answered as the expected answer, where nothing else is."""


# -- messages


def user_input(messages: Any) -> Json:
    """Return what a conversation asks: its one text, else its messages, instructions included.

    Args:
        messages: a text, or a list of ``{role, content}``; content is a text or a list of parts.

    Raises:
        SkippedCaseError: nothing is asked, or what is asked is no text.
    """
    if isinstance(messages, str):
        return _checked_question(messages)
    if not isinstance(messages, Sequence) or not messages:
        raise SkippedCaseError("it has no question")
    turns: list[dict[str, Json]] = []
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise SkippedCaseError("a message has no role")
        if message["role"] in ("tool", "function"):
            raise SkippedCaseError("the call answers a tool's result, not a user")
        turns.append({"role": message["role"], "content": text_of(message)})
    if not any(turn["role"] == "user" for turn in turns):
        raise SkippedCaseError("it has no question")
    return _checked_question(turns[0]["content"]) if len(turns) == 1 else [*turns]


def text_of(message: Mapping[str, Any]) -> str:
    """Return a message's text.

    Raises:
        SkippedCaseError: a part of it is no text, such as an image or the call of a tool.
    """
    content = message.get("content", message.get("parts"))
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, Sequence):
        raise SkippedCaseError("a message has no text")
    texts: list[str] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
            continue
        kind = part.get("type", "text") if isinstance(part, Mapping) else None
        text = part.get("text", part.get("content")) if isinstance(part, Mapping) else None
        if kind not in AS_TEXT or not isinstance(text, str):
            raise SkippedCaseError("a message holds more than text")
        texts.append(text)
    return "\n".join(texts)


def _checked_question(value: Json) -> Json:
    if isinstance(value, str) and not value.strip():
        raise SkippedCaseError("it has no question")
    return value


def _plain(value: Any) -> Json:
    """Return an input: the text of one message, a mapping of one field's only value, or as it is."""
    if isinstance(value, list) and value and all(_is_message(item) for item in value):
        return user_input(value)
    if isinstance(value, Mapping):
        if set(value) == {"messages"}:
            return user_input(value["messages"])
        if not value:
            raise SkippedCaseError("it has no question")
        return dict(value)
    if value is None:
        raise SkippedCaseError("it has no question")
    return _checked_question(value)


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("role"), str)


def _only(value: Any) -> Json:
    """Return an answer: the text of a message or of a mapping's only field, or as it is."""
    if isinstance(value, Mapping) and len(value) == 1:
        (value,) = value.values()
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    plain: Json = text_of(value) if _is_message(value) else value
    return plain


# -- rows


class MissingFieldError(SkippedCaseError):
    """A row lacks a field that the user named."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no field {name}")
        self.name = name
        self.known = tuple(known)
        """Fields that the row has."""


ANSWER_NAMES = ("expected", "ideal", "expected_output", "expectedOutput", "ground_truth")
"""Fields that hold the expected answer by their names."""


def picked(
    fields: Mapping[str, Any], names: FieldNames, question: Any, right: Any
) -> tuple[Json, Json]:
    """Return input and expected answer: of the fields that the user named, else as the tool has them.

    What is expected never stays in the input, unless the user names it there.

    Args:
        fields: what may be named.
        names: what the user named.
        question: the input, as the tool has it.
        right: the expected answer, as the tool has it.

    Raises:
        MissingFieldError: a named field is not there.
    """
    for name in (*names.inputs, *([] if names.expected is None else [names.expected])):
        if name not in fields:
            raise MissingFieldError(name, fields)
    if names.expected is not None:
        right = fields[names.expected]
    if names.inputs:
        chosen = {name: fields[name] for name in names.inputs}
        question = chosen[names.inputs[0]] if len(chosen) == 1 else chosen
    elif isinstance(question, Mapping):
        if right is None:
            right = next(
                (question[key] for key in ANSWER_NAMES if question.get(key) is not None), None
            )
        left_out = {names.expected, *ANSWER_NAMES}
        question = {name: value for name, value in question.items() if name not in left_out}
        question = question["input"] if set(question) == {"input"} else question
    return _plain(question), _only(right)


def of_langfuse(row: Mapping[str, Any], names: FieldNames) -> ForeignCase:
    """An item of a dataset, or a trace or observation."""
    if row.get("status") == "ARCHIVED":
        raise SkippedCaseError("archived")
    metadata = row.get("metadata")
    facts = {**(metadata if isinstance(metadata, Mapping) else {}), **_texts(row)}
    right = row.get("expectedOutput", row.get("expected_output"))
    if right is None and names.answers_as_expected:
        right = row.get("output")
    inputs = row.get("input")
    fields = {**facts, **(inputs if isinstance(inputs, Mapping) else {}), **row}
    question, expected = picked(fields, names, inputs, right)
    return ForeignCase(
        input=question,
        expected=expected,
        case_id=_name(row.get("id")),
        group=_name(row.get("sessionId") or row.get("session_id")),
        tags=tuple(tag for tag in row.get("tags") or () if isinstance(tag, str)),
        facts=facts,
    )


def of_langsmith(row: Mapping[str, Any], names: FieldNames) -> ForeignCase:
    """An example of a dataset, or a run: its outputs are an answer, no reference."""
    inputs, outputs = row.get("inputs"), row.get("outputs")
    if inputs is None:
        inputs = _prefixed(row, "input_")
        outputs = _prefixed(row, "output_") or None
    is_run = "run_type" in row
    if is_run and row.get("parent_run_id"):
        raise SkippedCaseError("a part of another run")
    if is_run and not names.answers_as_expected:
        outputs = None
    fields = {**row}
    for part in (outputs, inputs):
        fields.update(part if isinstance(part, Mapping) else {})
    question, expected = picked(fields, names, inputs, outputs)
    metadata = row.get("metadata")
    return ForeignCase(
        input=question,
        expected=expected,
        case_id=_name(row.get("id") or row.get("run_id")),
        group=_name(row.get("session_id")) if is_run else None,
        facts={**(metadata if isinstance(metadata, Mapping) else {}), **_texts(row)},
    )


def of_openai_evals(row: Mapping[str, Any], names: FieldNames) -> ForeignCase:
    """A sample ``{input, ideal}``, or an item of a hosted evaluation with its fields."""
    item = row.get("datasource_item", row.get("item"))
    if isinstance(item, Mapping):
        nested = item.get("item")
        item = nested if isinstance(nested, Mapping) and len(item) == 1 else item
        question, expected = picked(item, names, item, None)
        case_id = _name(row.get("datasource_item_id"))
        return ForeignCase(input=question, expected=expected, case_id=case_id, facts=dict(item))
    question, expected = picked(row, names, row.get("input"), row.get("ideal"))
    return ForeignCase(input=question, expected=expected, facts=_texts(row))


def of_table(row: Mapping[str, Any], names: FieldNames) -> ForeignCase:
    """A row of a table: the named fields, else all but its id and the expected answer."""
    others = {name: value for name, value in row.items() if name != "id"} or row
    question, expected = picked(row, names, others, None)
    case_id = row.get("id") if "id" not in names.inputs else None
    return ForeignCase(input=question, expected=expected, case_id=_name(case_id), facts=dict(row))


def _prefixed(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the columns of a table that begin so, without it."""
    return {key.removeprefix(prefix): row[key] for key in row if key.startswith(prefix)}


def _texts(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if isinstance(value, (str, int, bool))}


def _name(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        return None
    return str(value)
