"""Dotted paths, placeholders, shortening."""

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from convergence_core.records import Json
from tasks.http.request_templates import Values, placeholders
from tasks.json_values import MISSING, as_text, clean_text, parse_path, pick, to_json

DATA: dict[str, Json] = {"a": {"b": [{"c": 1}, {"c": 2}]}, "x.y": 3, "0": "zero", "n": None}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a.b[1].c", 2),
        ("a.b[-1].c", 2),
        ("a.b.0.c", 1),
        ("a.b[5].c", MISSING),
        ("a.b.c", MISSING),
        ("x.y", 3),
        ("0", "zero"),
        ("n", None),
        ("n.more", MISSING),
    ],
)
def test_dotted_paths_lead_through_mappings_and_lists(path, value):
    assert pick(DATA, path) == value


@pytest.mark.parametrize("path", ["", ".a", "a..b", "a[", "a]", "[x]"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ValueError, match="path"):
        parse_path(path)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("12345678901234567890"), "12345678901234567890"),
        (Decimal("1E+3"), "1000"),
        (Decimal("3.10"), "3.1"),
        (np.float32(3.1), "3.1"),
        (np.float16(0.1), "0.1"),
        (np.array([[1.1], [2.5]], np.float32), "[[1.1], [2.5]]"),
        (np.float64(0.1), "0.1"),
        (np.int64(2**62 + 1), str(2**62 + 1)),
    ],
)
def test_numbers_keep_their_digits(value: Any, text: str):
    assert as_text(to_json({"x": value})) == f'{{"x": {text}}}'


@given(st.text(alphabet=st.characters()))
def test_clean_texts_can_be_written_as_utf_8(text):
    cleaned = clean_text(text)
    assert cleaned.encode().decode() == cleaned


@given(st.text(alphabet="{}ab. []1", max_size=40))
def test_templates_of_any_braces_are_filled_without_an_error(template):
    values = Values({"a": 1}, {"b": 2})
    assert isinstance(values.text(template), str)
    list(placeholders(template))


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("Reply to {input.question} in a {tone} tone", "Reply to {{x}} {tone} in a {prompt} tone"),
        ("{input} is {input.question}.", '{"question": "{{x}} {tone}"} is {{x}} {tone}.'),
        ('As {"city": "x"}, {json}, {{x}} and {# no', 'As {"city": "x"}, {json}, {{x}} and {# no'),
        ("{{input.question}} {{tone}} {prompt} {tone.a}", "{input.question} {tone} {prompt} {tone.a}"),
        ("{input.question}\n\n<shots>\n<shot>\n<user>{tone}</user>\n<assistant>b</assistant>\n</shot>\n</shots>",
         "{{x}} {tone}\n\n<shots>\n<shot>\n<user>{tone}</user>\n<assistant>b</assistant>\n</shot>\n</shots>"),
    ],
)  # fmt: skip
def test_a_text_of_the_search_space_is_filled_once_and_other_braces_stay(prompt, text):
    values = Values({"prompt": prompt, "tone": "{prompt}"}, {"question": "{{x}} {tone}"})
    assert values.fill(["{prompt}", "({prompt})"]) == [text, f"({text})"]
