"""The Convergence: evidence-based optimizer of prompts, models and parameters.

``run_optimization`` searches for better settings. ``configure_runtime``, ``runtime_select`` and
``runtime_update`` serve them and learn from rewards. Each function has a blocking twin whose name
ends in ``_sync``. Types of configurations and events are in ``convergence.types``; the command
line is ``convergence --help``.

Example:
    >>> from convergence import run_optimization_sync
    >>> result = run_optimization_sync("optimization.yaml", max_usd=2.0)
    >>> result.best_config
    {"model": "small", "temperature": 0.3}

Names load on first use, so ``import convergence`` is quick and prints nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from convergence_core.packages import check_packages

if TYPE_CHECKING:
    from convergence.api import load_result, run_optimization, run_optimization_sync
    from convergence.runtime.functions import (
        configure_runtime,
        configure_runtime_sync,
        runtime_arms,
        runtime_arms_sync,
        runtime_evidence,
        runtime_evidence_sync,
        runtime_evolve_arms,
        runtime_evolve_arms_sync,
        runtime_get_decision,
        runtime_get_decision_sync,
        runtime_offer_arms,
        runtime_offer_arms_sync,
        runtime_retire_arm,
        runtime_retire_arm_sync,
        runtime_select,
        runtime_select_sync,
        runtime_update,
        runtime_update_sync,
    )
    from convergence.types import OptimizationResult

    __version__: str

CONVERGENCE_PACKAGE = "convergence-optimizer"

check_packages(("convergence", "convergence_core", "deployments", "flows", "tasks"))

__all__ = [
    "OptimizationResult",
    "__version__",
    "configure_runtime",
    "configure_runtime_sync",
    "load_result",
    "run_optimization",
    "run_optimization_sync",
    "runtime_arms",
    "runtime_arms_sync",
    "runtime_evidence",
    "runtime_evidence_sync",
    "runtime_evolve_arms",
    "runtime_evolve_arms_sync",
    "runtime_get_decision",
    "runtime_get_decision_sync",
    "runtime_offer_arms",
    "runtime_offer_arms_sync",
    "runtime_retire_arm",
    "runtime_retire_arm_sync",
    "runtime_select",
    "runtime_select_sync",
    "runtime_update",
    "runtime_update_sync",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    value: Any
    if name == "__version__":
        value = import_module("tasks.version").code_version()
    elif name in __all__:
        home = "runtime.functions" if "runtime" in name else "api"
        value = getattr(import_module(f"convergence.{home}"), name)
    else:
        raise AttributeError(f"module 'convergence' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
