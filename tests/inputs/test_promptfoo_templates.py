"""Templates in the assertions of a promptfoo configuration."""

from typing import Any

import pytest

from tasks.inputs.promptfoo_tests import SkippedTestError, filled

VARIABLES: dict[str, Any] = {
    "flag": True,
    "off": False,
    "none": None,
    "n": 1.0,
    "city": "Bonn",
    "obj": {"a": "x"},
}


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("{{flag}}|{{ off }}|{{none}}|{{n}}", "true|false||1"),
        ("{{obj.a}} of {{- city -}}", "x of Bonn"),
        ("{x} {} plain", "{x} {} plain"),
        (["{{city}}", 3], ["Bonn", 3]),
    ],
)
def test_variables_are_printed_as_nunjucks_prints_them(template, printed):
    assert filled(template, VARIABLES) == printed


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{city | upper}}", "code of its template language"),
        ("{% if city %}x{% endif %}", "code of its template language"),
        ("{{ nope }}", "no variable `nope`"),
        ("{{ obj.b }}", "no variable `obj.b`"),
        ("{{ obj }}", "`obj`, which is no text or number"),
    ],
)
def test_what_cannot_be_printed_is_named(template, reason):
    with pytest.raises(SkippedTestError, match=reason.replace("|", r"\|")):
        filled(f"a {template}", VARIABLES)
