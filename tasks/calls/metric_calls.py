"""Paid calls of metrics and agents: journaled, budgeted and retried.

A metric that pays for its judgement, and a target that asks models by itself, get an ``Asker``, bound to
one evaluation, and never call a provider themselves.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from convergence_core.ports import WorstCase
from convergence_core.records import Case, Json, Params, Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidCall:
    """One call about to be made on behalf of an evaluation."""

    purpose: str
    """``judge``…: the role that pays."""
    provider: str
    model: str | None
    request: Json
    """All that shapes the answer: base URL, model, body; no secret, no clock."""
    repeat: int = 0
    """Number of the vote: equal requests with different numbers are different calls."""
    credential: str | None = None
    """Name of the environment variable that holds the key: rate limits are counted per key."""
    worst: WorstCase
    timeout_s: float
    send: Callable[[], Awaitable[Reply]]
    """Makes the call once; raises ``EvaluationFault`` as ``Target.call`` does."""
    compose: "Callable[[Asker], Awaitable[Reply]] | None" = None
    """Answers by paid calls of its own, in place of ``send``. What they cost is theirs in budget and
    ledger, and in the reply for the evaluation; the whole reserves and costs nothing itself."""


@runtime_checkable
class Asker(Protocol):
    """Makes paid calls for one evaluation."""

    async def ask(self, call: PaidCall) -> Reply:
        """Return the stored or new answer; never pays for the same call twice.

        Raises:
            CandidateFault: the request was refused for its content.
            InfrastructureFault: retries did not heal it, or the run was stopped.
            EvaluatorFault: the budget is spent (error type ``budget``).
        """
        ...

    async def answer_of(self, params: Params, case: Case) -> Reply:
        """Return the target's answer with these parameters, e.g. the champion's.

        It shares its key with the evaluation of that candidate's first cell, so that whoever
        asks second does not pay.

        Raises:
            EvaluationFault: as ``ask``, or the target failed with these parameters.
        """
        ...


@runtime_checkable
class PaidMetric(Protocol):
    """A metric whose value needs paid calls."""

    @property
    def name(self) -> str:
        """Key under ``evaluation.metrics``."""
        ...

    async def judge(
        self, reply: Reply, case: Case, params: Params, asker: Asker
    ) -> dict[str, float]:
        """Return its finite numbers by name; empty when they are unknown.

        Raises:
            CandidateFault: the answer is of a form that cannot be judged.
            EvaluatorFault: the judge failed; the value is missing.
        """
        ...

    async def aclose(self) -> None:
        """Free connections; safe to call twice."""
        ...


@runtime_checkable
class ComposedTarget(Protocol):
    """A target whose answer takes paid calls of its own: an agent."""

    @property
    def longest_s(self) -> float:
        """How long an answer may take, in seconds."""
        ...

    async def compose(self, params: Params, case: Case, asker: Asker) -> Reply:
        """Answer once; ``cost_usd`` and ``usage`` of the reply are the sums of its calls.

        Raises:
            CandidateFault: as ``Target.call``.
            InfrastructureFault: a call failed, or the budget is spent; the calls that were answered
                are in the journal, and the next attempt finds them there.
        """
        ...
