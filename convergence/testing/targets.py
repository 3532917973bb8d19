"""Contract of a package's target."""

import asyncio
import copy
import time
import unittest
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import ClassVar

from convergence.testing.contract import HOSTILE_TEXTS, SECRET, PluginContract, brief, require
from convergence.testing.services import HOSTILE_ANSWERS, HostileAnswer
from convergence_core.config.api import ApiConfig
from convergence_core.errors import CandidateFault, EvaluationFault, InfrastructureFault
from convergence_core.ports import Target, WorstCase
from convergence_core.records import Case, Json, Params, Reply, canonical_json
from tasks.plugins.entry_points import PluginContext, find_plugin
from tasks.targets.plugin import PluginTarget, make_plugin_target

_N_AT_ONCE = 8


class TargetContract(PluginContract):
    """Tests that every target must pass; subclass it in a test module of the package.

    ``plugin`` belongs to the group ``convergence.targets``.
    """

    __test__ = False

    timeout_s: ClassVar[float] = 30.0
    """Longest duration of one call, in seconds."""
    params: ClassVar[Params] = {}
    """Parameters of a candidate that gets an answer."""
    other_params: ClassVar[Params | None] = None
    """Parameters that produce another request; ``None`` if this test tunes nothing."""
    case_input: ClassVar[Json] = None
    """Input of a case that gets an answer."""
    slow_input: ClassVar[Json] = None
    """Input of a case whose call takes a second or longer; ``None`` if there is none."""
    is_deterministic: ClassVar[bool] = True
    """Whether the same question always gets the same answer."""

    def answering(
        self,
        answer: HostileAnswer,  # noqa: ARG002 - for overrides
    ) -> AbstractContextManager[Mapping[str, Json]]:
        """Let the service behind the plugin give one answer, and return the options that reach it.

        Override it with a ``LoopbackService``; otherwise hostile answers are not tested.

        Raises:
            SkipTest: no override.
        """
        raise unittest.SkipTest(
            "no service behind it: override `answering` to test hostile answers"
        )

    # -- the entry point

    def test_the_entry_point_is_found_once_and_makes_a_target(self) -> None:
        """The environment has one plugin of the name, whose factory builds a complete target."""
        target = self._made()
        require(isinstance(target, Target), f"{target!r} lacks a method of `Target`")
        self._closed(target)

    # -- requests

    def test_a_request_is_json_and_always_the_same(self) -> None:
        """``request`` is pure: the journal finds stored answers by its hash."""
        first, other = self._made(), self._made()
        params, case = dict(self.params), self._case()
        before = copy.deepcopy((params, case))
        texts = {canonical_json(target.request(params, case)) for target in (first, first, other)}
        self._closed(first, other)
        require(len(texts) == 1, f"the same question made different requests: {sorted(texts)}")
        require((params, case) == before, "`request` changed its arguments")

    def test_other_parameters_make_another_request(self) -> None:
        """The request holds tuned parameters, so that the journal tells stored answers apart."""
        if self.other_params is None:
            raise unittest.SkipTest("`other_params` is None")
        target = self._made()
        requests = [
            target.request(params, self._case()) for params in (self.params, self.other_params)
        ]
        self._closed(target)
        require(requests[0] != requests[1], f"both made the request {requests[0]}")

    def test_a_call_costs_no_more_than_its_worst_case(self) -> None:
        """A call costs at most ``worst_case``, which budgets reserve."""
        target = self._made()
        bound = target.worst_case(self.params, self._case())
        require(isinstance(bound, WorstCase), f"worst_case() returned {bound!r}")
        reply = self._call(target, self._case())
        for name, most, used in (
            ("usd", bound.usd, reply.cost_usd),
            ("tokens", bound.tokens, reply.usage.total),
        ):
            is_kept = most is None or used is None or used <= most
            require(is_kept, f"the call cost {used} {name}, more than its worst case of {most}")

    # -- answers

    def test_a_reply_is_json_with_numbers_that_are_some(self) -> None:
        """The value has a JSON form; cost and tokens are 0 or more, or unknown."""
        reply = self._call(self._made(), self._case())
        canonical_json(reply.value)
        require(reply.latency_ms > 0, f"latency_ms is {reply.latency_ms}")

    def test_the_same_question_gets_the_same_answer(self) -> None:
        """Holds across instances, unless ``is_deterministic`` is false."""
        if not self.is_deterministic:
            raise unittest.SkipTest("`is_deterministic` is False")
        values = [self._call(self._made(), self._case()).value for _ in range(2)]
        require(values[0] == values[1], f"the answers differ: {values}")

    def test_calls_at_once_do_not_mix(self) -> None:
        """All calls in flight share a target."""
        target = self._made()

        async def go() -> list[Reply]:
            try:
                calls = [target.call(self.params, self._case()) for _ in range(_N_AT_ONCE)]
                return list(await asyncio.gather(*calls))
            finally:
                await target.aclose()

        values = [reply.value for reply in asyncio.run(go())]
        if self.is_deterministic:
            require(all(value == values[0] for value in values), f"the answers differ: {values}")

    def test_a_hostile_input_is_answered_or_refused(self) -> None:
        """Every input gives an answer or a fault, and its request is pure."""
        for text in HOSTILE_TEXTS:
            target = self._made()
            self._answered_or_refused(
                target, Case(case_id="c", input=_filled(self.case_input, text)), brief(text)
            )

    def test_a_hostile_answer_is_a_reply_or_a_fault(self) -> None:
        """A broken answer becomes data; 429 and 5xx are never the candidate's fault."""
        for answer in HOSTILE_ANSWERS:
            with self.answering(answer) as options:
                outcome = self._answered_or_refused(self._made(options), self._case(), answer.name)
            if answer.status == 429 or answer.status >= 500:
                is_infrastructure = isinstance(outcome, InfrastructureFault)
                message = (
                    f"status {answer.status} became {outcome!r}, not an `InfrastructureFault`"
                )
                require(is_infrastructure, message)

    # -- secrets, time-outs, ends

    def test_its_key_is_in_no_request_or_reply(self) -> None:
        """The plugin reads a key when it sends a request, and no output contains it."""
        target = self._made()
        require(
            SECRET not in canonical_json(target.request(self.params, self._case())),
            _SHOWN.format("request"),
        )
        require(SECRET not in repr(target), _SHOWN.format("repr"))
        reply = self._call(target, self._case())
        require(SECRET not in canonical_json(reply.value), _SHOWN.format("reply"))

    def test_its_key_is_in_no_fault(self) -> None:
        """Holds even if the service rejects the key."""
        unauthorized = next(a for a in HOSTILE_ANSWERS if a.status == 401)
        with self.answering(unauthorized) as options:
            outcome = self._answered_or_refused(self._made(options), self._case(), "401")
        shown = f"{outcome} {getattr(outcome, 'details', '')}"
        require(SECRET not in shown, _SHOWN.format("fault"))

    def test_a_call_that_is_given_up_ends_and_the_next_one_works(self) -> None:
        """A cancelled call ends soon without blocking the loop; the target stays usable."""
        if self.slow_input is None:
            raise unittest.SkipTest("`slow_input` is None")
        target = self._raw()

        async def go() -> float:
            begun = time.perf_counter()
            try:
                async with asyncio.timeout(0.1):
                    await target.call(self.params, Case(case_id="s", input=self.slow_input))
            except TimeoutError:
                took_s = time.perf_counter() - begun
                await target.call(self.params, self._case())
                return took_s
            finally:
                await target.aclose()
            raise AssertionError("the call of `slow_input` ended within 0.1 s")

        took_s = asyncio.run(go())
        require(
            took_s < 0.9, f"a call that was given up after 0.1 s held its loop for {took_s:.1f} s"
        )

    def test_it_may_be_closed_twice_and_unused(self) -> None:
        """``aclose`` frees resources, also of an unused target."""
        target = self._raw()

        async def go() -> None:
            await target.aclose()
            await target.aclose()

        asyncio.run(go())

    # -- helpers

    def _context(self, options: Mapping[str, Json] | None = None) -> PluginContext:
        return PluginContext(
            name=self.plugin,
            options=self.options if options is None else options,
            timeout_s=self.timeout_s,
            n_workers=_N_AT_ONCE,
            secret=lambda: SECRET,
        )

    def _made(self, options: Mapping[str, Json] | None = None) -> PluginTarget:
        """Return the target that a run builds, with a run's checks."""
        api = ApiConfig(name="contract", kind="plugin", plugin=self.plugin)
        return make_plugin_target(api, self._context(options))

    def _raw(self) -> Target:
        """Return the factory's target, without a run's checks."""
        context = self._context()
        target: Target = find_plugin("convergence.targets", context).make(context)
        return target

    def _case(self) -> Case:
        return Case(case_id="c", input=self.case_input)

    def _call(self, target: Target, case: Case) -> Reply:
        async def go() -> Reply:
            try:
                return await target.call(self.params, case)
            finally:
                await target.aclose()

        return asyncio.run(go())

    def _answered_or_refused(
        self, target: Target, case: Case, name: str
    ) -> Reply | EvaluationFault:
        try:
            canonical_json(target.request(self.params, case))
            target.worst_case(self.params, case)
            return self._call(target, case)
        except (CandidateFault, InfrastructureFault) as fault:
            require(str(fault).strip(), f"{name}: the fault has no message")
            is_bug = fault.error_type in BUGS
            require(not is_bug, f"{name}: the plugin raised {fault.error_type}: {fault}")
            return fault

    def _closed(self, *targets: Target) -> None:
        async def go() -> None:
            for target in targets:
                await target.aclose()

        asyncio.run(go())


_SHOWN = "the key of `secret()` is in its {}"
BUGS = frozenset({
    "AssertionError", "AttributeError", "IndexError", "JSONDecodeError", "KeyError", "NameError",
    "RecursionError", "TypeError", "UnboundLocalError", "UnicodeDecodeError", "UnicodeEncodeError",
    "ZeroDivisionError", "bad_bill", "bad_result", "not_finite", "not_json",
})  # fmt: skip
"""Exceptions and results that a plugin must not produce: it should raise a named fault."""


def _filled(value: Json, text: str) -> Json:
    """Return an input with every text replaced."""
    if isinstance(value, dict):
        return {name: _filled(item, text) for name, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, text) for item in value]
    return text if isinstance(value, str) else value
