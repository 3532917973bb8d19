"""Parts of the optimizer for programs of your own.

The names here are for packages that offer targets, metrics and chat models: ``docs/targets.md`` and ``docs/metrics.md`` show such packages; ``convergence.testing`` tests them.
"""

from convergence_core.errors import (
    Billed,
    CandidateFault,
    ConfigurationError,
    EvaluatorFault,
    InfrastructureFault,
)
from convergence_core.ports import LLM, Completion, Target, WorstCase
from convergence_core.records import Case, Json, Params, Reply, Usage
from tasks.plugins.entry_points import PluginContext

__all__ = [
    "LLM",
    "Billed",
    "CandidateFault",
    "Case",
    "Completion",
    "ConfigurationError",
    "EvaluatorFault",
    "InfrastructureFault",
    "Json",
    "Params",
    "PluginContext",
    "Reply",
    "Target",
    "Usage",
    "WorstCase",
]
