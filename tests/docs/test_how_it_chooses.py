"""The page on how candidates are chosen states the code's own constants."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/how-it-chooses.md"
ROWS = re.findall(r"^\| `([\w.()]+)` \| (-?[\d.]+) \|", PAGE.read_text("utf-8"), re.MULTILINE)


def constant(name: str) -> object:
    """A module's name, a dataclass field's default, or what a function of a number returns."""
    path, _, argument = name.rstrip(")").partition("(")
    parts = path.split(".")
    at = next(i for i, part in enumerate(parts) if not part.islower() or i == len(parts) - 1)
    found: object = importlib.import_module(".".join(["convergence_core", *parts[:at]]))
    for part in parts[at:]:
        fields = getattr(found, "__dataclass_fields__", {}) if isinstance(found, type) else {}
        found = fields[part].default if part in fields else getattr(found, part)
    return found(int(argument)) if argument and callable(found) else found


def test_the_table_is_read():
    assert len(ROWS) >= 20


@pytest.mark.parametrize(("name", "value"), ROWS, ids=[name for name, _ in ROWS])
def test_constants_in_the_page_are_those_of_the_code(name, value):
    assert constant(name) == float(value), f"docs/how-it-chooses.md says {value}"
