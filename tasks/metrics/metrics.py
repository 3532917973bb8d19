"""Metrics: numbers with a unit, measured on one reply."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from convergence_core.errors import CandidateFault, EvaluatorFault
from convergence_core.ports import Metric
from convergence_core.records import Case, Json, Params, Reply
from tasks.json_values import MISSING, answer_field
from tasks.metrics.comparisons import Comparison, expected_part
from tasks.metrics.user_evaluators import UserEvaluator


def judged_value(metric: str, answer: Json, path: str | None) -> Json:
    """Return the part of an answer that a metric measures: its ``field``, or all of it.

    Raises:
        CandidateFault: the answer lacks the field.
    """
    value = answer if path is None else answer_field(answer, path)
    if value is MISSING:
        raise CandidateFault(
            f"metric `{metric}`: the answer has no field `{path}`", error_type="missing_field"
        )
    return value


@dataclass(frozen=True, slots=True)
class ReplyMetric:
    """Number that the reply itself holds."""

    name: str
    field: Literal["latency_ms", "first_token_ms", "cost_usd"]
    """``latency_ms`` runs from sending the request to the last byte of the answer,
    ``first_token_ms`` to the first piece of a streamed one; ``cost_usd`` is the call's cost.
    """

    async def measure(self, reply: Reply, case: Case, params: Params) -> float | None:  # noqa: ARG002 - protocol
        """Return the number; ``None`` if it is unknown."""
        value: float | None = getattr(reply, self.field)
        return value


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """Success: 1 for an answer, 0 for a candidate's fault."""

    name: str
    value_of_fault: ClassVar[float] = 0.0
    """Value that ``tasks.calls.scorer`` records if there is no reply."""

    async def measure(self, reply: Reply, case: Case, params: Params) -> float:  # noqa: ARG002 - protocol
        """Return 1: there is a reply."""
        return 1.0


@dataclass(frozen=True, slots=True)
class Compared:
    """Comparison of the answer, or its field, with the expected value."""

    name: str
    compare: Comparison
    field: str | None = None
    expected_field: str | None = None
    is_optional: bool = False
    """Whether cases that expect an empty list are left out of the reward."""

    def applies(self, case: Case) -> bool:
        """Return whether the case has something to compare with."""
        return not self.is_optional or expected_part(case.expected, self.expected_field) != []

    async def measure(self, reply: Reply, case: Case, params: Params) -> float:  # noqa: ARG002 - protocol
        """Return the comparison's number.

        Raises:
            CandidateFault: the answer lacks the field, or cannot be compared.
            EvaluatorFault: the expected value or the comparison is at fault.
        """
        result = judged_value(self.name, reply.value, self.field)
        try:
            value = self.compare(result, expected_part(case.expected, self.expected_field))
        except CandidateFault:
            raise
        except Exception as error:
            raise EvaluatorFault(
                f"metric `{self.name}`: {error}", error_type=type(error).__name__
            ) from error
        if not math.isfinite(value):
            raise EvaluatorFault(f"metric `{self.name}` is {value}", error_type="not_finite")
        return value


@dataclass(frozen=True, slots=True)
class FunctionMetric:
    """Number from a user function, or one that the target measured."""

    name: str
    """Key under ``evaluation.metrics``."""
    evaluator: UserEvaluator | None
    field: str | None = None
    expected_field: str | None = None

    async def measure(self, reply: Reply, case: Case, params: Params) -> float | None:
        """Return the function's number; see ``UserEvaluator.value``.

        Raises:
            CandidateFault: the answer lacks the field.
            EvaluatorFault: there is no finite number.
        """
        if self.evaluator is not None:
            if self.field or self.expected_field:
                reply = replace(reply, value=judged_value(self.name, reply.value, self.field))
                case = replace(case, expected=expected_part(case.expected, self.expected_field))
            return await self.evaluator.value(self.name, reply, case, params)
        if self.name not in reply.extra:
            raise EvaluatorFault(
                f"metric `{self.name}`: no evaluator was given and the target measured no such "
                "number. Pass `evaluator=`, or return it in `metrics`.",
                error_type="no_number",
            )
        return reply.extra[self.name]

    async def aclose(self) -> None:
        """Stop the evaluator's threads; safe to call twice."""
        if self.evaluator is not None:
            await self.evaluator.aclose()


BUILT_IN_METRICS: dict[str, Callable[[str], Metric]] = {
    "latency_ms": partial(ReplyMetric, field="latency_ms"),
    "cost_usd": partial(ReplyMetric, field="cost_usd"),
    "first_token_ms": partial(ReplyMetric, field="first_token_ms"),
    "success_rate": SuccessRate,
}
