"""Interfaces to the world: targets, metrics, LLMs, players; records of journals.

``tasks`` implements them, and every implementation passes the contract suite of its protocol
(``tests/contracts``).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from convergence_core.records import NO_USAGE, Case, Json, Params, Reply, Usage, sha256_hex

if TYPE_CHECKING:
    import numpy as np

Row = Mapping[str, object]
"""Row of a table: column name → value; a missing column is NULL."""


def payloads_of(run_id: str, kinds: Mapping[str, str]) -> list[Row]:
    """Return the rows of ``payloads`` for these texts, by hash.

    Args:
        run_id: Id of the run.
        kinds: Text → its kind: prompt, response, thinking or thought.
    """
    hashes = {sha256_hex(text): text for text in kinds}
    return [
        {"run_id": run_id, "payload_sha256": sha256, "kind": kinds[text], "text": text}
        for sha256, text in sorted(hashes.items())
    ]


RunStatus = Literal["running", "interrupted", "stopped", "failed", "done"]
"""All runs except ``done`` can resume. ``interrupted`` means that the process died."""


class TextEmbedder(Protocol):
    """Embedder of texts as short vectors, similar for texts of similar meaning."""

    name: str
    """Name of the model and its vectors, which becomes part of the features' names."""

    def embed(self, text: str) -> Sequence[float] | None:
        """Return the vector of a text, of constant length; ``None`` if it is not ready in time."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallIntent:
    """Planned call, as recorded in the journal before the answer."""

    call_key: str
    run_id: str
    generation: int | None
    eval_id: str | None
    purpose: str
    """Purpose of the call, e.g. ``evaluation``, ``judge``, ``thought`` or ``sao``."""
    provider: str
    model: str | None
    request_sha256: str
    lease_s: float
    """Seconds during which no other process may make this call; exceeds the call's time-out."""
    max_usd: float | None = None
    """Worst-case price in US dollars; ``None`` if unknown."""
    max_tokens: int | None = None
    """Worst-case number of tokens, prompt and answer; ``None`` if unknown."""
    fresh_since_us: int | None = None
    """Earliest end of a stored answer that counts as a hit; ``None`` accepts any age."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """Stored outcome of a call, which may be a candidate fault."""

    outcome: Json
    """Redacted JSON, as the session wrote it."""
    started_us: int
    ended_us: int
    attempt: int
    run_id: str
    eval_id: str | None
    """Run and evaluation that first paid for the answer."""
    cost_usd: float | None
    usage: Usage = NO_USAGE

    def is_paid_by(self, intent: CallIntent) -> bool:
        """Return whether the requesting evaluation itself paid for the answer."""
        return (self.run_id, self.eval_id) == (intent.run_id, intent.eval_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Answer of the journal to an intent."""

    state: Literal["granted", "hit", "busy"]
    """``granted``: make the call. ``hit``: ``answer`` holds the outcome. ``busy``: another owner
    makes the call."""
    attempt: int = 0
    """Number of the granted attempt, from 1."""
    answer: StoredAnswer | None = None
    """Stored answer of a hit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """Outcome of an attempt."""

    call_key: str
    attempt: int
    state: Literal["done", "failed"]
    outcome: Json
    """Answer if ``done``; if ``failed``, the error, which is recorded but never reused."""
    started_us: int
    ended_us: int
    cost_usd: float | None = None
    maybe_usd: float = 0.0
    """US dollars that a failed attempt may have cost, e.g. a time-out after sending."""
    maybe_tokens: int = 0
    """Tokens that a failed attempt may have used."""
    usage: Usage = NO_USAGE
    price_version: str | None = None
    """Date of the price table behind ``cost_usd``."""
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCall:
    """Attempt in flight when its process died, which may have been billed."""

    call_key: str
    attempt: int
    purpose: str
    provider: str
    model: str | None
    started_us: int
    max_usd: float | None
    """Worst-case cost in US dollars; ``None`` if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTotals:
    """Totals of one run in the journal."""

    n_attempts: int = 0
    """Calls started, including retries and lost calls but not journal hits."""
    n_done: int = 0
    n_failed: int = 0
    n_in_flight: int = 0
    """Calls neither done nor failed; after a kill they may have been billed."""
    cost_usd: float | None = 0.0
    """Total of known prices in US dollars; ``None`` if no call has a known price."""
    maybe_usd: float = 0.0
    """Worst-case cost of attempts with an unknown outcome, in US dollars."""
    n_unpriced: int = 0
    """Answered attempts of unknown price."""
    unpriced_usd: float = 0.0
    """Worst-case cost of these attempts if it was known before the call, in US dollars."""
    tokens: int = 0
    """Reported tokens of prompts and answers."""
    maybe_tokens: int = 0
    unpriced_tokens: int = 0
    """Worst-case tokens of attempts of unknown price, minus the tokens they reported."""
    active_s: float = 0.0
    """Seconds of work on the run: for each process, from its first claim to its last settlement.
    The time between a stop and a resume does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One row of table ``runs``."""

    run_id: str
    name: str
    label: str
    status: RunStatus
    started_us: int
    ended_us: int | None = None
    reason: str | None = None
    config_json: str
    config_sha256: str
    config_path: str | None = None
    base_dir: str
    """Folder to which relative paths of the configuration refer."""
    search_space_json: str
    cases_sha256: str
    seed: int
    code_version: str
    tags: Mapping[str, str] = field(default_factory=dict)
    n_generations: int = 0
    summary_json: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """State after the last committed generation, for resuming."""

    generation: int
    rng_state_json: str
    sampler_state_json: str
    progress_json: str
    """State of the stopping rule and the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCase:
    """Upper bound on the cost of one attempt, which a budget reserves in advance."""

    usd: float | None = None
    """US dollars; ``None`` if the price is unknown."""
    tokens: int | None = None
    """Tokens of prompt and answer; ``None`` if unbounded or unknown."""


@runtime_checkable
class Target(Protocol):
    """Function, HTTP endpoint or chat model whose settings are optimized."""

    @property
    def provider(self) -> str:
        """Short name for tables, e.g. ``function``, ``http`` or ``openai``."""

    def request(self, params: Params, case: Case) -> Json:
        """Return the canonical request: pure, without secrets or clock.

        The journal's key is a hash of it. It therefore contains everything that shapes the answer
        (base URL, model, body) and nothing else (no authorization, no time-outs).

        Raises:
            CandidateFault: These parameters cannot form a request for this case.
        """

    def worst_case(self, params: Params, case: Case) -> WorstCase:
        """Return an upper bound on the cost of one attempt: pure, without a call.

        Raises:
            CandidateFault: See ``request``.
        """

    async def call(self, params: Params, case: Case) -> Reply:
        """Send one request and return the reply; never retries.

        Raises:
            CandidateFault: The candidate caused the failure; a retry would not help.
            InfrastructureFault: Network, rate limit or server failed; ``retryable`` reports
                whether to retry.
        """

    async def aclose(self) -> None:
        """Release connections, threads and processes; safe to call twice."""


@runtime_checkable
class SessionTarget(Protocol):
    """Target with paid sessions that outlive a killed process."""

    def bind(self, run_id: str) -> None:
        """Tag the sessions of all later calls with a run."""

    def sweep(self, run_ids: Iterable[str]) -> None:
        """Release open sessions of runs without a process; logs failures, never raises."""


@runtime_checkable
class Metric(Protocol):
    """One measured number with a unit."""

    @property
    def name(self) -> str:
        """Key under ``evaluation.metrics``."""

    async def measure(self, reply: Reply, case: Case, params: Params) -> float | None:
        """Return the finite value, or ``None`` if unknown (e.g. no price).

        Raises:
            CandidateFault: The metric cannot apply to this form of answer (e.g. not JSON).
            EvaluatorFault: The metric itself failed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Answer of a chat model."""

    text: str
    latency_ms: float
    model: str | None = None
    usage: Usage = NO_USAGE
    first_token_ms: float | None = None
    """Milliseconds from sending the request to the first chunk; ``None`` without streaming."""
    dropped: tuple[str, ...] = ()
    """Request fields that the client omitted, each as ``name: reason``."""
    finish_reason: str | None = None
    thinking: str | None = None
    """The model's reasoning before the answer, not part of ``text``; ``None`` if unknown."""
    cost_usd: float | None = None
    """US dollars that the provider reports as billed; ``None`` if it reports none and the price
    table applies."""
    raw: Mapping[str, Json]
    """The provider's complete answer, without headers."""


@runtime_checkable
class LLM(Protocol):
    """Chat model of some provider, for chat targets, judges and thinkers."""

    @property
    def provider(self) -> str:
        """Short name for tables."""

    @property
    def base_url(self) -> str:
        """Address of the requests; part of every ``call_key``."""

    async def complete(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, **options: Json
    ) -> Completion:
        """Send one request; never retries.

        Raises:
            CandidateFault: The provider refuses the content or the parameters.
            InfrastructureFault: Network, rate limit, authentication or server failed.
        """

    async def aclose(self) -> None:
        """Close connections; safe to call twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Request of a language game to one of its roles."""

    role: str
    text: str
    """Everything that the role may know: rules, history and the question."""
    state: str = ""
    """Shortest form of what the role knows, equal for equal situations; tables learn from it."""
    options: tuple[str, ...] = ()
    """Legal replies; empty if any reply is legal."""


@runtime_checkable
class Player(Protocol):
    """Player of a role in a language game: a model, a table, a solver or a sandbox."""

    def answer(self, ask: Ask, rng: "np.random.Generator") -> str:
        """Answer one request.

        Args:
            ask: Request to the role.
            rng: Random generator of this game for this role.

        Raises:
            InfrastructureFault: The player did not answer; the game is missing, never scored.
        """
