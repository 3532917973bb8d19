"""Libraries of the benchmark's own environment, imported when they are first needed."""

import importlib
from types import ModuleType


def need(name: str) -> ModuleType:
    """Import a library that the project itself does not need.

    Raises:
        ModuleNotFoundError: it is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"`{name}` is not installed here; run `pip install -c constraints.txt -e . "
            "-r benchmarks/optimizer/requirements.txt`",
            name=error.name,
        ) from error
