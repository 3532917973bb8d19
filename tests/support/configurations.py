"""Loaded configurations for tests, made from short mappings."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.inputs.loader import Loaded, load_mapping

BASE: dict[str, Any] = {
    "api": {"name": "system", "kind": "function", "function": "math:sqrt"},
    "search_space": {"parameters": {"k": {"type": "int", "min": 1, "max": 9, "default": 2}}},
    "evaluation": {
        "test_cases": {"inline": [{"id": "a", "input": {"q": "one"}, "expected": "1"}]},
        "metrics": {"exact_match": {"weight": 1}},
    },
}


def mapping(**sections: Any) -> dict[str, Any]:
    """Return the base configuration with replaced sections. Dotted names reach into sections."""
    made = copy.deepcopy(BASE)
    for name, value in sections.items():
        here = made
        *path, last = name.split("__")
        for part in path:
            here = here.setdefault(part, {})
        here[last] = value
    return made


def loaded(base_dir: Path | str = ".", **sections: Any) -> Loaded:
    return load_mapping(mapping(**sections), base_dir, allow_callable=True)


def http_api(url: str, **more: Any) -> Mapping[str, Any]:
    return {"name": "system", "kind": "http", "endpoint": url, **more}


def chat_api(url: str, **more: Any) -> Mapping[str, Any]:
    request = {"options": {"model": "m"}, **more.pop("request", {})}
    return {"name": "system", "kind": "openai", "endpoint": url, "request": request, **more}
