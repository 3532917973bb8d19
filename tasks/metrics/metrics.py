"""Metrics: numbers with a unit, measured of one reply."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from convergence_core.config import Configuration, MetricConfig
from convergence_core.errors import CandidateFault, ConfigurationError, EvaluatorFault, Problem
from convergence_core.ports import Metric
from convergence_core.records import Case, Json, Params, Reply
from tasks.calls.metric_calls import PaidMetric
from tasks.functions.user_functions import UserFunction, resolve
from tasks.inputs.environment import Environment
from tasks.json_values import MISSING, pick
from tasks.metrics.comparisons import Comparison, comparison
from tasks.metrics.judge import judge_configs, llm_of, make_judges
from tasks.metrics.user_evaluators import UserEvaluator

if TYPE_CHECKING:
    from tasks.inputs.loader import Loaded

MAX_EVALUATOR_THREADS = 32


@dataclass(frozen=True, slots=True)
class LatencyMs:
    """Milliseconds from sending the request to the last byte of the answer."""

    name: str

    async def measure(self, reply: Reply, case: Case, params: Params) -> float:  # noqa: ARG002 - protocol
        """Return the reply's latency."""
        return reply.latency_ms


@dataclass(frozen=True, slots=True)
class FirstTokenMs:
    """Milliseconds from sending the request to the first piece of a streamed answer."""

    name: str

    async def measure(self, reply: Reply, case: Case, params: Params) -> float | None:  # noqa: ARG002 - protocol
        """Return the reply's time to its first token, ``None`` when it was not streamed."""
        return reply.first_token_ms


@dataclass(frozen=True, slots=True)
class CostUsd:
    """US dollars that the call cost."""

    name: str

    async def measure(self, reply: Reply, case: Case, params: Params) -> float | None:  # noqa: ARG002 - protocol
        """Return the reply's cost, ``None`` when the target does not know it."""
        return reply.cost_usd


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """1 for an answer, 0 for a failure of the candidate; the session sets the 0."""

    name: str

    async def measure(self, reply: Reply, case: Case, params: Params) -> float:  # noqa: ARG002 - protocol
        """Return 1: there is a reply."""
        return 1.0


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison of the answer, or a field of it, with what the case expects."""

    name: str
    compare: Comparison
    field: str | None = None
    expected_field: str | None = None

    async def measure(self, reply: Reply, case: Case, params: Params) -> float:  # noqa: ARG002 - protocol
        """Return the comparison's number.

        Raises:
            CandidateFault: the answer lacks the field, or cannot be compared.
            EvaluatorFault: the expected value, or the comparison itself, is at fault.
        """
        result: Json = reply.value
        if self.field is not None:
            found = pick(result, self.field)
            if found is MISSING:
                raise CandidateFault(
                    f"metric `{self.name}`: the answer has no field `{self.field}`",
                    error_type="missing_field",
                )
            result = found
        expected = case.expected
        if self.expected_field is not None:
            found = pick(expected, self.expected_field)
            expected = None if found is MISSING else found
        try:
            value = self.compare(result, expected)
        except CandidateFault:
            raise
        except Exception as error:
            raise EvaluatorFault(
                f"metric `{self.name}`: {error}", error_type=type(error).__name__
            ) from error
        if not math.isfinite(value):
            raise EvaluatorFault(f"metric `{self.name}` is {value}", error_type="not_finite")
        return value


class FunctionMetric:
    """A number from a function of the user's, or one that the target measured itself."""

    def __init__(self, name: str, evaluator: UserEvaluator | None) -> None:
        self._name = name
        self._evaluator = evaluator

    @property
    def name(self) -> str:
        """Key under ``evaluation.metrics``."""
        return self._name

    async def measure(self, reply: Reply, case: Case, params: Params) -> float | None:
        """Return the function's number; see ``UserEvaluator.value``.

        Raises:
            EvaluatorFault: there is no finite number.
        """
        if self._evaluator is not None:
            return await self._evaluator.value(self._name, reply, case, params)
        if self._name not in reply.extra:
            raise EvaluatorFault(
                f"metric `{self._name}`: no evaluator was given and the target measured no such "
                "number. Pass `evaluator=`, or return it in `metrics`.",
                error_type="no_number",
            )
        return reply.extra[self._name]

    async def aclose(self) -> None:
        """End the evaluator's threads; safe to call twice."""
        if self._evaluator is not None:
            await self._evaluator.aclose()


_OWN_NUMBERS: dict[str, Callable[[str], Metric]] = {
    "latency_ms": LatencyMs,
    "cost_usd": CostUsd,
    "first_token_ms": FirstTokenMs,
    "success_rate": SuccessRate,
}


def make_metrics(
    loaded: "Loaded",
    world: Environment | None = None,
    *,
    evaluator: UserFunction | str | None = None,
) -> tuple[Metric | PaidMetric, ...]:
    """Return the metrics of a configuration, in its order.

    Args:
        loaded: the configuration and its files.
        world: keys and prices of judges; ``None``: the environment's.
        evaluator: function for metrics of type ``function`` that name none; takes the place of
            ``evaluation.custom_evaluator``.

    Raises:
        ConfigurationError: a function cannot be imported or called; holds all problems.
    """
    world = world or Environment.unchecked(loaded.configuration)
    return _Maker(loaded, world, evaluator).make()


def judge_workers(configuration: Configuration) -> int:
    """Return the most calls of judges in flight."""
    models = {
        llm.model_dump_json(): llm.parallel_workers
        for metric in judge_configs(configuration).values()
        if (llm := llm_of(configuration, metric)) is not None
    }
    return max(1, sum(models.values()))


class _Maker:
    def __init__(
        self, loaded: "Loaded", world: Environment, evaluator: UserFunction | str | None
    ) -> None:
        self._loaded = loaded
        self._world = world
        self._judges: Mapping[str, PaidMetric] = {}
        self._evaluation = loaded.configuration.evaluation
        workers = loaded.configuration.optimization.execution.parallel_workers
        self._n_workers = min(workers, MAX_EVALUATOR_THREADS)
        self._given = evaluator
        self._problems: list[Problem] = []
        self._key_to_evaluator: dict[str, UserEvaluator | None] = {}

    def make(self) -> tuple[Metric | PaidMetric, ...]:
        if judge_configs(self._loaded.configuration):
            self._judges = self._make_judges()
        metrics = tuple(self._metric(name, cfg) for name, cfg in self._evaluation.metrics.items())
        if self._problems:
            raise ConfigurationError(self._problems)
        return metrics

    def _make_judges(self) -> Mapping[str, PaidMetric]:
        from tasks.providers import make_llm  # noqa: PLC0415 - brings httpx

        loaded, world = self._loaded, self._world
        return make_judges(
            loaded.configuration,
            space=loaded.space,
            texts=loaded.texts,
            rubrics=loaded.rubrics,
            make_llm=partial(make_llm, secrets=world.secrets, mock_url=world.mock_url),
            prices=world.prices,
        )

    def _metric(self, name: str, config: MetricConfig) -> Metric | PaidMetric:
        if name in self._judges:
            return self._judges[name]
        if config.type in _OWN_NUMBERS:
            return _OWN_NUMBERS[config.type](name)
        if config.type != "function":
            compare = comparison(config, self._loaded.schemas.get(name))
            return Compared(name, compare, config.field, config.expected_field)
        return FunctionMetric(name, self._evaluator_of(name, config))

    def _evaluator_of(self, name: str, config: MetricConfig) -> UserEvaluator | None:
        """Return the evaluator of a metric; metrics of one function share it."""
        custom = self._evaluation.custom_evaluator
        if config.function is not None:
            return self._evaluator(config.function, f"evaluation.metrics.{name}.function")
        if self._given is not None:
            return self._evaluator(self._given, "evaluator")
        if custom is None or custom.module is None:
            return None
        beside = Path(self._loaded.base_dir, *custom.module.split(".")).with_suffix(".py")
        module = str(beside.resolve()) if beside.is_file() else custom.module
        return self._evaluator(f"{module}:{custom.function}", "evaluation.custom_evaluator")

    def _evaluator(self, function: UserFunction | str, key: str) -> UserEvaluator | None:
        memory = function if isinstance(function, str) else str(id(function))
        if memory not in self._key_to_evaluator:
            evaluator: UserEvaluator | None = None
            try:
                found = resolve(function, self._loaded.base_dir, key=key)
                evaluator = UserEvaluator(found, n_workers=self._n_workers, key=key)
            except ConfigurationError as error:
                self._problems += error.problems
            self._key_to_evaluator[memory] = evaluator
        return self._key_to_evaluator[memory]
