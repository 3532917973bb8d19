"""Interfaces to what is optimized and to how it is measured.

``Target``, ``Metric`` and ``LLM`` are implemented in ``tasks``; every implementation passes the
contract suite of its protocol (``tests/contracts``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from convergence_core.records import NO_USAGE, Case, Json, Params, Reply, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCase:
    """The most that one attempt can cost; what a budget reserves before it."""

    usd: float | None = None
    """``None``: the price is unknown."""
    tokens: int | None = None
    """Prompt and answer; ``None``: unbounded or unknown."""


@runtime_checkable
class Target(Protocol):
    """One function, HTTP endpoint or chat model whose settings are optimized."""

    @property
    def provider(self) -> str:
        """Short name for tables, e.g. ``function``, ``http`` or ``openai``."""
        ...

    def request(self, params: Params, case: Case) -> Json:
        """Return the canonical request: pure, no secret, no clock.

        Everything that shapes the answer is in it (base URL, model, body); what does not
        (authorization, time-outs) is not, for the journal's key is a hash of it.

        Raises:
            CandidateFault: these parameters cannot make a request for this case.
        """
        ...

    def worst_case(self, params: Params, case: Case) -> WorstCase:
        """Return a bound on what one attempt at this request costs: pure, no call.

        Raises:
            CandidateFault: as ``request``.
        """
        ...

    async def call(self, params: Params, case: Case) -> Reply:
        """Ask once and return the reply; never retries.

        Raises:
            CandidateFault: the candidate's doing; asking again would not help.
            InfrastructureFault: network, rate limit or server; ``retryable`` says whether to ask
                again.
        """
        ...

    async def aclose(self) -> None:
        """Free connections, threads and processes; safe to call twice."""
        ...


@runtime_checkable
class Metric(Protocol):
    """One measured number with a unit."""

    @property
    def name(self) -> str:
        """Key under ``evaluation.metrics``."""
        ...

    async def measure(self, reply: Reply, case: Case, params: Params) -> float | None:
        """Return the finite value, or ``None`` when it is unknown (e.g. no price).

        Raises:
            CandidateFault: the answer is of a form that cannot be measured (e.g. not JSON).
            EvaluatorFault: the metric itself failed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A chat model's answer."""

    text: str
    latency_ms: float
    model: str | None = None
    usage: Usage = NO_USAGE
    first_token_ms: float | None = None
    """From sending the request to the first piece of the answer; ``None``: not streamed."""
    dropped: tuple[str, ...] = ()
    """Request fields that were left out, each as ``name: reason``."""
    finish_reason: str | None = None
    raw: Mapping[str, Json]
    """The provider's whole answer, without headers."""


@runtime_checkable
class LLM(Protocol):
    """A chat model behind some provider; used by chat targets, judges and thinkers."""

    @property
    def provider(self) -> str:
        """Short name for tables."""
        ...

    @property
    def base_url(self) -> str:
        """Where requests go; part of every ``call_key``."""
        ...

    async def complete(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, **options: Json
    ) -> Completion:
        """Ask once; never retries.

        Raises:
            CandidateFault: the request is refused for its content or parameters.
            InfrastructureFault: network, rate limit, authentication or server.
        """
        ...

    async def aclose(self) -> None:
        """Close connections; safe to call twice."""
        ...
