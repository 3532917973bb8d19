"""The Convergence: tune prompts, models and parameters by evidence, night after night.

Command line: ``convergence --help``. Python: ``run_optimization`` and ``run_optimization_sync``;
types for hints and configurations are in ``convergence.types``. Names load when first used, so
``import convergence`` is quick and silent.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from convergence_core.packages import check_packages

if TYPE_CHECKING:
    from convergence.api import OptimizationResult, run_optimization, run_optimization_sync

    __version__: str

CONVERGENCE_PACKAGE = "convergence-optimizer"

check_packages(("convergence", "convergence_core", "flows", "tasks"))

__all__ = ["OptimizationResult", "__version__", "run_optimization", "run_optimization_sync"]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    value: Any
    if name == "__version__":
        value = import_module("tasks.version").code_version()
    elif name in __all__:
        value = getattr(import_module("convergence.api"), name)
    else:
        raise AttributeError(f"module 'convergence' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
