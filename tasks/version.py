"""The version of the code that made a run."""

from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version


@lru_cache(maxsize=1)
def code_version() -> str:
    """Return the installed distribution's version, or ``source`` in a bare checkout."""
    try:
        return version("convergence-optimizer")
    except PackageNotFoundError:
        return "source"
