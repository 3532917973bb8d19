"""Configuration files of test projects."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def write_configuration(folder: Path, tree: dict[str, Any], overrides: Mapping[str, Any]) -> Path:
    """Write a configuration and return its path.

    Args:
        folder: Project folder.
        tree: Configuration to write with the overrides.
        overrides: Key → value; ``__`` enters a mapping: ``budget__max_usd``.
    """
    for dotted, value in overrides.items():
        *parents, last = dotted.split("__")
        node = tree
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = value
    path = folder / "optimization.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return path
