"""Public parts of the optimizer for packages and programs.

Packages with targets, metrics and listeners import these names. ``docs/targets.md``,
``docs/metrics.md`` and ``docs/telemetry.md`` show such packages; ``convergence.testing`` tests
them.
"""

from convergence_core.errors import (
    Billed,
    CandidateFault,
    ConfigurationError,
    EvaluatorFault,
    InfrastructureFault,
)
from convergence_core.events import (
    BudgetWarned,
    Event,
    FinalStarted,
    GenerationFinished,
    GenerationStarted,
    RunFinished,
    RunListener,
    RunOutcome,
    RunStarted,
    ThinkingStopped,
    TrafficChanged,
)
from convergence_core.ports import LLM, Completion, Target, WorstCase
from convergence_core.records import Case, Json, Params, Reply, Usage
from tasks.plugins.entry_points import PluginContext

__all__ = [
    "LLM",
    "Billed",
    "BudgetWarned",
    "CandidateFault",
    "Case",
    "Completion",
    "ConfigurationError",
    "EvaluatorFault",
    "Event",
    "FinalStarted",
    "GenerationFinished",
    "GenerationStarted",
    "InfrastructureFault",
    "Json",
    "Params",
    "PluginContext",
    "Reply",
    "RunFinished",
    "RunListener",
    "RunOutcome",
    "RunStarted",
    "Target",
    "ThinkingStopped",
    "TrafficChanged",
    "Usage",
    "WorstCase",
]
