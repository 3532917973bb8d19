"""Answers to any prompt: valid in form, better with better parameters, the same every time."""

import json
import math
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from tasks.metrics.judge.prompts import judge_messages, response_format
from tasks.metrics.judge.verdicts import read_verdict
from tasks.mock.protocol import Message, ModelRequest
from tasks.mock.responder import ability, is_good, respond

RULES = "Answer exactly, only with the result, in this format, step by step."


def ask(user: str, system: str = RULES, **settings) -> ModelRequest:
    said = (Message(role="system", text=system), Message(role="user", text=user))
    return ModelRequest(messages=said, **{"model": "m", **settings})


def good(user: str, system: str = RULES, **settings) -> str:
    """Return the answer of the first model that answers this well."""
    for i in range(50):
        asked = ask(user, system, **{"temperature": 0.0, "model": f"m{i}", **settings})
        if is_good(asked, 0):
            return respond(asked).text
    raise AssertionError("no model answers well")


def share(**settings) -> float:
    system = settings.pop("system", "")
    asked = [ask(f"What is {i} + {i + 1}?", system, **settings) for i in range(400)]
    return sum(respond(a).text == str(2 * i + 1) for i, a in enumerate(asked)) / len(asked)


def test_quality_depends_on_temperature_model_instructions_and_effort():
    by_temperature = [share(temperature=t) for t in (0.3, 0.8, 1.4, 2.0)]
    assert by_temperature == sorted(by_temperature, reverse=True)
    assert by_temperature[0] - by_temperature[-1] > 0.3
    plain = share(temperature=0.3)
    assert share(temperature=0.3, system=RULES) > plain + 0.05
    assert share(temperature=0.3, effort="high") > plain + 0.02
    by_model = [share(temperature=0.3, model=f"model-{i}") for i in range(8)]
    assert max(by_model) - min(by_model) > 0.2


def test_at_temperature_0_the_share_of_good_answers_is_the_logistic_of_the_ability():
    for model in ("a", "b", "c"):
        asked = [ask(f"case {i}", "", temperature=0.0, model=model) for i in range(1000)]
        share_good = sum(is_good(one, 0) for one in asked) / 1000
        expected = 1.0 / (1.0 + math.exp(-ability(asked[0])))
        deviation = math.sqrt(expected * (1.0 - expected) / 1000)
        assert abs(share_good - expected) < 3.5 * deviation, (model, share_good, expected)


def test_an_answer_is_a_function_of_the_request_and_the_choice():
    asked = [ask(f"Tell me about {i} moons.", temperature=1.0) for i in range(50)]
    once = [respond(a, 0) for a in asked]
    assert once == [respond(a, 0) for a in asked]
    assert once != [respond(a, 1) for a in asked]
    assert once != [respond(replace(a, seed=5), 0) for a in asked]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is 12 + 7?", "19"),
        ("2 + 3 * 4 - 1 =", "13"),
        ("Compute 7 divided by 2.", "3.5"),
        ("6 \u00d7 7", "42"),
        ('Say "good morning"', "good morning"),
        ("Repeat after me: one two three", "one two three"),
        ("The cat sat on the mat. Was the cat on the mat?", "Yes"),
        ("The cat sat on the mat. Was the dog on the mat?", "No"),
        ("Paris is the capital of France. It rains. What is the capital of France?",
         "Paris is the capital of France. It rains."),
    ],
)  # fmt: skip
def test_good_answers(question: str, answer: str):
    assert good(question) == answer


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "email": {"type": "string", "format": "email"},
        "amount": {"type": "number"},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "paid": {"type": "boolean"},
        "kind": {"enum": ["invoice", "order"]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
        "note": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 10}]},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}},
        "fixed": {"const": 7},
    },
    "required": ["name", "email", "amount", "age", "paid", "kind", "tags", "note", "fixed"],
    "additionalProperties": False,
    "$defs": {
        "part": {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}}},
            "required": ["id"],
        }
    },
}  # fmt: skip
LETTER = "This order is from Ada Lovelace, ada@example.org. Age: 36. The amount is 12.5, paid."


@pytest.mark.parametrize("index", range(12))
def test_structured_answers_are_valid_good_or_bad(index):
    asked = ask(LETTER, form="schema", schema=SCHEMA, temperature=1.8)
    value = json.loads(respond(asked, index).text)
    jsonschema.validate(value, SCHEMA)


def verdict(mode: Any, blocks: Any, *, structured: bool = True) -> Any:
    said = judge_messages(mode, rubric="The answer must be right.", blocks=blocks)
    messages = tuple(Message(role=str(m["role"]), text=str(m["content"])) for m in said)
    form: Any = response_format(mode)["json_schema"]
    asked = ModelRequest(model="judge", messages=messages)
    if structured:
        asked = replace(asked, form="schema", schema=form["schema"])
    return read_verdict(mode, respond(asked).text)


REFERENCE = ("REFERENCE", "Paris is the capital of France")
INPUT = ("INPUT", "What is the capital of France?")


@pytest.mark.parametrize("structured", [True, False])
def test_a_judge_rates_what_the_answer_shares_with_the_reference(structured):
    def rate(answer: str) -> Any:
        return verdict("rating", [INPUT, REFERENCE, ("ANSWER", answer)], structured=structured)

    assert rate("Paris is the capital of France") == 10
    assert rate("Well: Paris is the capital of France, they say.") == 10
    assert 1 < rate("The capital is Berlin") < 9
    assert rate("no idea") == 1
