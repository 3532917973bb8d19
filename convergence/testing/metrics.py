"""Contract of a package's metric."""

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

from convergence.testing.contract import HOSTILE_TEXTS, PluginContract, brief, require
from convergence_core.errors import EvaluatorFault
from convergence_core.records import Case, Json, Params, Reply
from tasks.metrics.user_evaluators import UserEvaluator
from tasks.plugins.entry_points import PluginContext, find_plugin

_ANSWERS: tuple[Json, ...] = (
    *HOSTILE_TEXTS,
    None,
    True,
    0,
    -1.5,
    10**30,
    [],
    [1, [2, ["x"]]],
    {},
    {"a": {"b": None}},
)
"""Answers that a metric may get."""


class MetricContract(PluginContract):
    """Tests that every metric must pass; subclass it in a test module of the package.

    ``plugin`` belongs to the group ``convergence.metrics``.
    """

    __test__ = False

    result: ClassVar[Json] = None
    """A good answer."""
    worse_result: ClassVar[Json] = None
    """A worse answer."""
    expected: ClassVar[Json] = None
    """Expected answer of the case."""
    params: ClassVar[Params] = {}
    """Parameters of the candidate."""
    lower_is_better: ClassVar[bool] = False
    """Whether a good answer has the lower value."""

    def test_a_good_answer_is_worth_more_than_a_worse_one(self) -> None:
        """The value of a good answer is better."""
        good, worse = self._measured(self.result), self._measured(self.worse_result)
        require(isinstance(good, float), f"the good answer scores {good!r}")
        require(isinstance(worse, float), f"the worse answer scores {worse!r}")
        is_ordered = good < worse if self.lower_is_better else good > worse  # type: ignore[operator]
        require(is_ordered, f"the good answer scores {good}, the worse one {worse}")

    def test_the_same_answer_has_the_same_value(self) -> None:
        """A metric reads only its arguments."""
        values = {self._measured(self.result) for _ in range(3)}
        require(len(values) == 1, f"one answer has the values {sorted(map(str, values))}")

    def test_any_answer_has_a_finite_value_none_or_a_fault(self) -> None:
        """Any answer is possible; an exception becomes a fault with a message."""
        for answer in _ANSWERS:
            value = self._measured(answer)
            if isinstance(value, EvaluatorFault):
                is_told = bool(str(value).strip()) and value.error_type not in _NO_NUMBER
                require(is_told, f"{brief(answer)}: {value}")

    def _made(self, options: Mapping[str, Json] | None = None) -> Any:
        options = self.options if options is None else options
        context = PluginContext(
            name=self.plugin, options=options, key="evaluation.metrics.contract"
        )
        plugin = find_plugin("convergence.metrics", context)
        function = plugin.make(context)
        require(callable(function), f"the factory made {function!r}, not a function")
        return function

    def _measured(self, result: Json) -> float | EvaluatorFault | None:
        evaluator = UserEvaluator(self._made(), n_workers=1, key="evaluation.metrics.contract")
        reply = Reply(value=result, latency_ms=1.0, provider="contract")
        case = Case(case_id="c", input=None, expected=self.expected)

        async def go() -> float | EvaluatorFault | None:
            try:
                return await evaluator.value("contract", reply, case, self.params)
            except EvaluatorFault as fault:
                return fault
            finally:
                await evaluator.aclose()

        return asyncio.run(go())


_NO_NUMBER = frozenset({"no_number", "not_finite"})
