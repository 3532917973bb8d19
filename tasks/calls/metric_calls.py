"""Paid calls of metrics and agents: journaled, budgeted and retried.

A metric that pays for its judgement, and a target that calls models, receive an ``Asker`` bound to
one evaluation and never call a provider directly.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

from convergence_core.ports import Target, WorstCase
from convergence_core.records import Case, Json, Params, Reply
from tasks.json_values import mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidCall:
    """Planned call for an evaluation."""

    purpose: str
    """Paying role, e.g. ``judge``."""
    provider: str
    model: str | None
    request: Json
    """Everything that shapes the answer (base URL, model, body), without secrets or clock."""
    repeat: int = 0
    """Number of the vote: equal requests with different numbers are different calls."""
    credential: str | None = None
    """Environment variable of the key, since rate limits apply per key."""
    worst: WorstCase
    timeout_s: float
    send: Callable[[], Awaitable[Reply]]
    """Sends the request once; raises ``EvaluationFault`` like ``Target.call``."""
    compose: "Callable[[Asker], Awaitable[Reply]] | None" = None
    """Answers through further paid calls instead of ``send``. Budget and ledger charge those
    calls, and the reply reports their sum; this call itself reserves and costs nothing."""

    @classmethod
    def of_target(
        cls, target: Target, params: Mapping[str, Any], case: Case, **more: Any
    ) -> "PaidCall":
        """Return the call of a target with one case; other arguments are fields of this class.

        Raises:
            CandidateFault: these parameters form no valid request.
        """
        request = target.request(params, case)
        model = mapping(request).get("model")
        return cls(
            provider=target.provider,
            model=model if isinstance(model, str) else None,
            request=request,
            worst=target.worst_case(params, case),
            send=partial(target.call, params, case),
            **more,
        )


@runtime_checkable
class Asker(Protocol):
    """Makes paid calls for one evaluation.

    Example:
        >>> reply = await asker.ask(PaidCall(purpose="judge", send=send, ...))
        >>> reply.value
    """

    async def ask(self, call: PaidCall) -> Reply:
        """Return the stored or new answer; never pays for the same call twice.

        Raises:
            CandidateFault: the provider refused the content.
            InfrastructureFault: retries failed, or the run was stopped.
            EvaluatorFault: the budget is exhausted (error type ``budget``).
        """

    async def answer_of(self, params: Params, case: Case) -> Reply:
        """Return the target's answer for these parameters, e.g. the champion's.

        It shares its key with the first cell of that candidate, so that only the first caller
        pays.

        Raises:
            EvaluationFault: as for ``ask``, or the target failed with these parameters.
        """


@runtime_checkable
class PaidMetric(Protocol):
    """Metric whose value needs paid calls."""

    @property
    def name(self) -> str:
        """Key under ``evaluation.metrics``."""

    async def judge(
        self, reply: Reply, case: Case, params: Params, asker: Asker
    ) -> dict[str, float]:
        """Return the finite numbers by name; empty if unknown.

        Raises:
            CandidateFault: the judge cannot handle this form of answer.
            EvaluatorFault: the judge failed; the value is missing.
        """

    async def aclose(self) -> None:
        """Free connections; safe to call twice."""


@runtime_checkable
class ComposedTarget(Protocol):
    """Target whose answer needs further paid calls, such as an agent."""

    @property
    def longest_s(self) -> float:
        """Maximum duration of an answer, in seconds."""

    async def compose(self, params: Params, case: Case, asker: Asker) -> Reply:
        """Answer once; ``cost_usd`` and ``usage`` of the reply are the sums of its calls.

        Raises:
            CandidateFault: as for ``Target.call``.
            InfrastructureFault: a call failed, or the budget is exhausted. The journal keeps the
                answered calls for the next attempt.
        """
