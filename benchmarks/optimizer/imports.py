"""Lazy imports of libraries from the benchmark's environment."""

import importlib
from types import ModuleType


def need(name: str) -> ModuleType:
    """Import a library that the project itself does not need.

    Raises:
        ModuleNotFoundError: If it is not installed; the message explains how to install it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"`{name}` is not installed here; run `pip install -c constraints.txt -e . "
            "-r benchmarks/optimizer/requirements.txt`",
            name=error.name,
        ) from error
