"""Types of the Python interface: configurations, results and events.

``ConvergenceConfig`` and its parts are the configuration classes of version 0.1. A mapping of the
form of ``optimization.yaml`` can express more; ``run_optimization`` accepts both.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from convergence.notebooks import NotebookView
from convergence_core.config import Configuration
from convergence_core.errors import ConfigurationError, Problem
from convergence_core.events import (
    CellEvaluated,
    Event,
    FinalStarted,
    GenerationFinished,
    GenerationStarted,
    Listener,
    RunFinished,
    RunStarted,
    ThinkingStopped,
)
from convergence_core.records import Json, Params

if TYPE_CHECKING:
    from convergence_core.result import RunResult

__all__ = [
    "ApiConfig",
    "CellEvaluated",
    "Config",
    "ConvergenceConfig",
    "EvaluationConfig",
    "Evaluator",
    "Event",
    "FinalStarted",
    "GenerationFinished",
    "GenerationStarted",
    "Json",
    "Listener",
    "OptimizationResult",
    "Params",
    "RunFinished",
    "RunStarted",
    "RunnerConfig",
    "SearchSpaceConfig",
    "StorageConfig",
    "TestCases",
    "ThinkingStopped",
]


class Evaluator(Protocol):
    """Callable that scores an answer.

    A function ``f(result, expected, params, metric) -> float`` also works. Either may be async.

    Example:
        >>> def evaluate(prediction, expected, *, context=None):
        ...     return {"quality": float(prediction["result"] == expected)}
    """

    def __call__(
        self,
        prediction: dict[str, Any],
        expected: Any,
        *,
        context: dict[str, Any] | None = None,
    ) -> dict[str, float]:
        """Return metric → number; the answer is ``prediction["result"]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizationResult(NotebookView):
    """Result of a run. ``result["best_config"]`` works like ``result.best_config``."""

    success: bool
    """Whether the run recommends a candidate; false if a limit ended it before the first reward.
    """
    best_config: dict[str, Any]
    """Parameters of the recommended candidate; empty if there is none."""
    best_score: float
    """Its mean reward in [0, 1]: on held-out cases, else re-estimated on search cases, else as
    measured during the search. NaN without a candidate. ``result.winner`` has all three with
    intervals."""
    configs_generated: int
    """Number of distinct candidates evaluated."""
    generations_run: int
    optimization_run_id: str
    timestamp: datetime
    """End of the run."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """Events except evaluations, each as ``event`` (its type) and the event's fields."""
    error: str | None = None
    """Why there is no candidate; ``None`` on success."""
    result: "RunResult"
    """Full result: intervals, held-out results, the defaults next to the winner, files."""

    def __getitem__(self, name: str) -> Any:
        """Return a field by name.

        Raises:
            KeyError: the field is unknown.
        """
        if name not in self.__slots__:
            raise KeyError(name)
        return getattr(self, name)


SELF_MEASURED = frozenset({"latency_ms", "cost_usd", "success_rate", "accuracy"})
"""Metrics that need no evaluator."""
REPORTED = "convergence.evaluators:reported"
"""Function that reads all other metrics from the answer if there is no evaluator."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def to_section(self) -> dict[str, Any]:
        """Return the fields that are set, each at its alias as a dotted path, else at its name."""
        section: dict[str, Any] = {}
        for name, info in type(self).model_fields.items():
            *parents, key = (info.serialization_alias or name).split(".")
            place = section
            if (value := getattr(self, name)) is not None:
                for parent in parents:
                    place = place.setdefault(parent, {})
                place[key] = value
        return section


class ApiConfig(_Section):
    """Target of the optimization."""

    name: str
    kind: str = "callable"
    """``callable`` (the ``local_function``, else the endpoint) or a kind of ``optimization.yaml``:
    ``function``, ``http``, ``openai``."""
    endpoint: str | None = None
    request_timeout: float | None = Field(30.0, serialization_alias="request.timeout_seconds")
    """Seconds; ``None`` means the default."""
    auth_type: str | None = Field(None, serialization_alias="auth.type")
    """``bearer``, ``api_key``, ``basic`` or ``none``; ``None`` means no authentication."""
    auth_token_env: str | None = Field(None, serialization_alias="auth.token_env")
    """Environment variable that holds the token."""
    auth_header_name: str | None = Field(None, serialization_alias="auth.header_name")
    """Header of ``api_key``; ``None`` means ``x-api-key``."""


class SearchSpaceConfig(_Section):
    """Parameters by name, in the form of ``optimization.yaml``."""

    parameters: dict[str, dict[str, Any]]


class RunnerConfig(_Section):
    """Length and width of the search."""

    generations: int = Field(10, serialization_alias="evolution.generations")
    population: int = Field(20, serialization_alias="evolution.population_size")
    seed: int | None = None
    """``None`` means 0."""
    early_stopping: dict[str, Any] | None = Field(
        None, serialization_alias="execution.early_stopping"
    )
    """``enabled``, ``patience``, ``min_improvement``; ``None`` means the defaults."""


class EvaluationConfig(_Section):
    """Metrics and their weights.

    ``latency_ms``, ``cost_usd``, ``success_rate`` and ``accuracy`` work as in
    ``optimization.yaml``.
    ``run_optimization(evaluator=…)`` returns any other metric; without an evaluator, the target's
    answer
    must hold a number of that name.
    """

    required_metrics: list[str]
    weights: dict[str, float] = Field(default_factory=dict)
    """Metric → weight; a missing metric has weight 1."""

    def to_metrics(self, *, has_evaluator: bool) -> dict[str, Any]:
        """Return the metrics of the ``evaluation`` section.

        Raises:
            ConfigurationError: a weight belongs to no metric.
        """
        problems = [
            Problem(
                key=f"evaluation.weights.{name}",
                rule="must belong to one of `required_metrics`",
                value=repr(name),
                fix=f"Add {name!r} to `required_metrics`, or remove its weight.",
            )
            for name in self.weights
            if name not in self.required_metrics
        ]
        if problems:
            raise ConfigurationError(problems)
        metrics: dict[str, dict[str, Any]] = {}
        for name in self.required_metrics:
            metric: dict[str, Any] = {"weight": self.weights.get(name, 1.0)}
            if name not in SELF_MEASURED:
                metric["type"] = "function"
                if not has_evaluator:
                    metric["function"] = REPORTED
            metrics[name] = metric
        return metrics


class StorageConfig(_Section):
    """Location of the results store."""

    path: str | None = None
    """Folder of the results store; ``None`` means ``./convergence-data``."""


class ConvergenceConfig(_Section):
    """Complete configuration in Python."""

    api: ApiConfig
    search_space: SearchSpaceConfig
    evaluation: EvaluationConfig
    runner: RunnerConfig = Field(default_factory=RunnerConfig)
    storage: StorageConfig | None = None

    def to_mapping(self, *, has_evaluator: bool = False) -> dict[str, Any]:
        """Return a mapping of the form of ``optimization.yaml``, without test cases.

        Args:
            has_evaluator: whether an evaluator supplies the metrics that are not measured
                automatically.
        """
        api = self.api.to_section()
        if self.api.kind == "callable":
            del api["kind"]
        mapping: dict[str, Any] = {
            "api": api,
            "search_space": self.search_space.to_section(),
            "evaluation": {"metrics": self.evaluation.to_metrics(has_evaluator=has_evaluator)},
            "optimization": self.runner.to_section(),
        }
        if self.storage is not None and self.storage.path is not None:
            mapping["storage"] = self.storage.to_section()
        return mapping


Config: TypeAlias = str | Path | Mapping[str, Any] | ConvergenceConfig | Configuration
"""Configuration types that ``run_optimization`` accepts."""
TestCases: TypeAlias = (
    str | Path | Iterable[Mapping[str, Any]] | Callable[[], Iterable[Mapping[str, Any]]]
)
"""Test cases, a path to them, or a function that returns them."""
