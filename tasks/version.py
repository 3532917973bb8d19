"""The version of the code that made a run."""

from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@lru_cache(maxsize=1)
def code_version() -> str:
    """Return the installed distribution's version, or ``source`` in a bare checkout."""
    try:
        return version("convergence-optimizer")
    except PackageNotFoundError:
        return "source"


def install_command(extra: str) -> str:
    """Return the command that installs an extra: of the checkout where this is one."""
    root = Path(__file__).resolve().parents[1]
    if (root / "pyproject.toml").is_file():
        return f"pip install '{root}[{extra}]'"
    return f"pip install 'convergence-optimizer[{extra}]'"
