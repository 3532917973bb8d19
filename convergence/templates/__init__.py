"""Example files that ``convergence init`` writes."""

import json
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

SCHEMA_NAME = "optimization.schema.json"
CONFIG_NAME = "optimization.yaml"

OF_DATA = frozenset({"quickstart", "recorded-exam"})
"""Templates stored in the checkout's ``data`` folder."""
_OUTSIDE = (
    "# At the root of the checkout, where `convergence query` looks; nothing is written beside "
    "the data.\n"
)


def _folder(template: str) -> Traversable:
    """Return the folder of a template, next to this module or in the distribution's data."""
    if template not in OF_DATA:
        return files("convergence.templates") / template
    installed = files("convergence") / "_data" / template
    if installed.is_dir():
        return installed
    return Path(__file__).parents[2] / "data" / template


def schema_text() -> str:
    """Return the JSON Schema of a configuration."""
    from convergence_core.config import json_schema  # noqa: PLC0415 - builds all models

    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def plan_files(template: str) -> dict[str, str]:
    """Return the files of a template: path relative to the new folder → text.

    Args:
        template: one of ``convergence init --template``.
    """
    root = _folder(template)
    texts = {name: file.read_text(encoding="utf-8") for name, file in _walk(root, "")}
    if template in OF_DATA:
        # A checkout stores these results at its root, a new folder in itself.
        texts[CONFIG_NAME] = texts[CONFIG_NAME].replace(_OUTSIDE, "").replace("../../", "./")
    texts[SCHEMA_NAME] = schema_text()
    # The configuration comes first, because you open it first.
    return {name: texts[name] for name in sorted(texts, key=lambda n: (n != CONFIG_NAME, n))}


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _walk(entry, f"{prefix}{entry.name}/")
        elif not entry.name.endswith(".pyc"):
            yield prefix + entry.name, entry
