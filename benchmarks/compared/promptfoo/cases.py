"""Test cases for promptfoo from the neighbouring JSON file: half for the search, half held out."""

import json
import random
from pathlib import Path
from typing import Any


def search() -> list[dict[str, Any]]:
    """Return the first half of the shuffled cases."""
    return _cases()[: len(_cases()) // 2]


def held_out() -> list[dict[str, Any]]:
    """Return the second half."""
    return _cases()[len(_cases()) // 2 :]


def _cases() -> list[dict[str, Any]]:
    read = json.loads((Path(__file__).parent / "test_cases.json").read_text())
    random.Random(7).shuffle(read)  # noqa: S311
    return [
        {"vars": case["input"], "assert": [{"type": "equals", "value": case["expected"]}]}
        for case in read
    ]
