"""Interfaces to the world: targets, metrics, LLMs, players, stores and journals.

``tasks`` implements them; every implementation passes the contract suite of its protocol
(``tests/contracts``). ``Store`` and ``Journal`` block; async code calls them from a thread.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from convergence_core.records import NO_USAGE, Case, Json, Params, Reply, Usage

if TYPE_CHECKING:
    import numpy as np

Row = Mapping[str, object]
"""One row of a table: column name → value of the column's type; absent means NULL."""

RunStatus = Literal["running", "interrupted", "stopped", "failed", "done"]
"""``done`` runs cannot be resumed, all others can. ``interrupted``: the process was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallIntent:
    """A call about to be made: everything the journal knows before the answer."""

    call_key: str
    run_id: str
    generation: int | None
    eval_id: str | None
    purpose: str
    """``evaluation``, ``judge``, ``thought``, ``sao``…"""
    provider: str
    model: str | None
    request_sha256: str
    lease_s: float
    """How long no other process may make this call; must outlast the call's own time-out."""
    max_usd: float | None = None
    """Worst-case price; ``None``: unknown."""
    max_tokens: int | None = None
    """Worst-case number of tokens, prompt and answer; ``None``: unknown."""
    fresh_since_us: int | None = None
    """A stored answer that ended earlier is too old: the call is granted anew; ``None``: none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """A stored outcome of a call; candidate faults are outcomes too."""

    outcome: Json
    """Redacted JSON, as the session wrote it."""
    started_us: int
    ended_us: int
    attempt: int
    run_id: str
    eval_id: str | None
    """Run and evaluation that paid first."""
    cost_usd: float | None
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Answer of the journal to an intent."""

    state: Literal["granted", "hit", "busy"]
    """``granted``: make the call; ``hit``: here is the answer; ``busy``: another owner is at it."""
    attempt: int = 0
    """Number of the attempt granted, from 1."""
    answer: StoredAnswer | None = None
    """Set for a hit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """End of an attempt."""

    call_key: str
    attempt: int
    state: Literal["done", "failed"]
    outcome: Json
    """The answer for ``done``; for ``failed`` the error, kept for the record, never reused."""
    started_us: int
    ended_us: int
    cost_usd: float | None = None
    maybe_usd: float = 0.0
    """What a failed attempt may have cost, e.g. a time-out after sending."""
    maybe_tokens: int = 0
    """Tokens a failed attempt may have used."""
    usage: Usage = NO_USAGE
    price_version: str | None = None
    """Date of the price table that ``cost_usd`` comes from."""
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCall:
    """An attempt that was under way when its process died: maybe paid."""

    call_key: str
    attempt: int
    purpose: str
    provider: str
    model: str | None
    started_us: int
    max_usd: float | None
    """What it may have cost at most; ``None``: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTotals:
    """The journal's account of one run."""

    n_attempts: int = 0
    """Calls started, retries and lost ones included, journal hits not."""
    n_done: int = 0
    n_failed: int = 0
    n_in_flight: int = 0
    """Started and neither done nor failed: after a kill, maybe paid."""
    cost_usd: float | None = 0.0
    """Sum of known prices; ``None`` when no priced call was made but unpriced ones were."""
    maybe_usd: float = 0.0
    """Worst case of attempts whose end is not known."""
    n_unpriced: int = 0
    """Attempts that were answered and whose price is unknown."""
    unpriced_usd: float = 0.0
    """Worst case of those, where it was known before the call: a reply without usage."""
    tokens: int = 0
    """Reported tokens, prompt and answer."""
    maybe_tokens: int = 0
    unpriced_tokens: int = 0
    """Worst case of those of unknown price, less what they reported."""
    active_s: float = 0.0
    """Seconds in which some process worked on the run: for each, from its first claim to its last
    settlement. The time between a stop and its resume is not in it."""


@runtime_checkable
class Journal(Protocol):
    """Every call that may cost money: claimed before it is made, durable before it is used.

    Both batch methods are one durable transaction: when they return, the rows survive power loss.
    """

    def claim(self, intents: Sequence[CallIntent], owner: str) -> list[Claim]:
        """Claim calls, in order.

        A ``done`` key is a hit, unless its answer ended before ``fresh_since_us``; an evaluation
        that paid for an answer or was given one gets the same again, however old. A key under a
        live lease is busy.
        """
        ...

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Record how attempts ended; the first ``done`` of a key wins until it is too old."""
        ...

    def answers(self, call_keys: Sequence[str]) -> dict[str, StoredAnswer]:
        """Return the stored ``done`` outcomes among these keys; claims and writes nothing.

        A run whose ``budget.max_calls`` is spent reads what it has paid for by this.
        """
        ...

    def totals(self, run_id: str, *, before_generation: int | None = None) -> CallTotals:
        """Return the account of a run; with ``before_generation`` only of earlier generations.

        ``active_s`` is that of the whole run.
        """
        ...

    def abandon(self, run_id: str) -> list[LostCall]:
        """Release the claims of a run whose process is known to be dead; return them by age.

        Called once by the holder of the system's lease when it resumes a run.
        """
        ...

    def attempts(
        self, run_id: str, *, generation: int | None, all_generations: bool = False
    ) -> list[Row]:
        """Return the ledger rows (table ``attempts``) of one generation, ordered by key."""
        ...

    def close(self) -> None:
        """Free the file or the connection; safe to call twice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One row of ``runs``."""

    run_id: str
    name: str
    label: str
    status: RunStatus
    started_us: int
    ended_us: int | None = None
    reason: str | None = None
    """Why it ended, in words."""
    config_json: str
    config_sha256: str
    config_path: str | None = None
    base_dir: str
    """Folder that relative paths of the configuration start from."""
    search_space_json: str
    cases_sha256: str
    seed: int
    code_version: str
    tags: Mapping[str, str] = field(default_factory=dict)
    n_generations: int = 0
    """Committed so far."""
    summary_json: str | None = None
    """The result handed over, for finished runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """State after the last committed generation, for a resume."""

    generation: int
    rng_state_json: str
    sampler_state_json: str
    progress_json: str
    """The stopper's and the budget's numbers."""


@runtime_checkable
class Store(Protocol):
    """Immutable results, one file per (run, generation, table)."""

    @property
    def path(self) -> PurePath:
        """Root folder."""
        ...

    def publish(self, run_id: str, generation: int, tables: Mapping[str, Sequence[Row]]) -> None:
        """Publish a generation durably, the ``generations`` row last; doing it again is harmless.

        Generation ``-1`` holds the final re-estimation (its rows' ``generation`` is NULL).

        Raises:
            StoreWriteError: nothing of this generation is visible then.
        """
        ...

    def write_ahead(
        self, run_id: str, generation: int, tables: Mapping[str, Sequence[Row]]
    ) -> None:
        """Write what is fixed before a generation is evaluated; it is visible with the generation.

        Raises:
            StoreWriteError: what was written ahead before is unchanged then.
        """
        ...

    def save_run(self, record: RunRecord) -> None:
        """Create or replace the run's row, atomically."""
        ...

    def finish_run(self, record: RunRecord) -> None:
        """Save a ``done`` run's row and compact its generations into one file per table."""
        ...

    def continue_run(self, source_id: str, run_id: str) -> None:
        """Publish a finished run's generations under a new run's id; again is harmless."""
        ...

    def run(self, name: str) -> RunRecord:
        """Find one run by id, label or unambiguous part of its id.

        Raises:
            RunNotFoundError: none, or several.
        """
        ...

    def runs(self, system: str | None = None) -> list[RunRecord]:
        """Return all runs, or those of one optimized system, latest first."""
        ...

    def checkpoint(self, run_id: str) -> Checkpoint | None:
        """Return the last committed generation's checkpoint, or ``None`` before the first."""
        ...

    def rows(
        self, sql: str, parameters: Mapping[str, object] | None = None
    ) -> list[dict[str, object]]:
        """Run SQL over the views and return rows as dictionaries.

        Raises:
            QueryError: the SQL is wrong.
        """
        ...


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
class SessionTarget(Protocol):
    """A target that opens paid sessions which outlive a killed process."""

    def bind(self, run_id: str) -> None:
        """Mark the sessions of all later calls with a run."""
        ...

    def sweep(self, run_ids: Iterable[str]) -> None:
        """Release what runs that nobody works on any more have left open; never raises for a failure."""
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
    thinking: str | None = None
    """The model's thinking before it, which is no part of it; ``None``: none is known."""
    cost_usd: float | None = None
    """US dollars that the provider itself says it billed; ``None``: it says none, and the price counts."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a language game asks one of its roles."""

    role: str
    text: str
    """All that the role may know: the rules, what happened, what to answer."""
    state: str = ""
    """What the role knows, in its shortest form: equal for equal situations. Tables learn by it."""
    options: tuple[str, ...] = ()
    """Replies that are legal; empty: any text."""


@runtime_checkable
class Player(Protocol):
    """Whoever answers for a role of a language game: a model, a table, a solver, a sandbox."""

    def answer(self, ask: Ask, rng: "np.random.Generator") -> str:
        """Answer once.

        Args:
            ask: what is asked.
            rng: the play's own stream for this role.

        Raises:
            InfrastructureFault: nobody answered; the play is missing, never scored.
        """
        ...
