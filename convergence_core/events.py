"""Events of a run for its listeners: progress bars, notebooks, logs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from convergence_core.errors import EvaluationFault
from convergence_core.ports import LostCall
from convergence_core.records import Json, Params, Reply, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The run has acquired its lease and opened its journal."""

    run_id: str
    label: str
    """Short display name, e.g. ``support_bot-7f3a``."""
    system: str = ""
    """Name of the system, with the suffix ``.offline`` if a mock answers."""
    seed: int | None = None
    """Seed of the run."""
    algorithm: str
    n_generations: int
    n_search_cases: int
    n_holdout_cases: int
    resumed_from: int
    """Number of committed generations; 0 for a new run."""
    maybe_paid: tuple[LostCall, ...]
    """Calls in flight when an earlier process died."""
    n_cells_planned: int
    """Maximum number of search cells of all generations, without the final test."""
    warm_start: str | None = None
    """Knowledge from earlier runs, in words; ``None`` if there is none."""
    continues: str | None = None
    """Finished run that this run continues, in words; ``None`` for a new run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationStarted:
    """A generation has a plan."""

    generation: int
    n_candidates: int
    """Maximum number of candidates, if each evaluation is planned after the preceding ones."""
    n_cells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEvaluated:
    """A cell has an outcome."""

    generation: int | None
    """``None`` during the final test."""
    reward: float | None
    cached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFinished:
    """A generation is committed."""

    generation: int
    n_evaluations: int
    n_failed: int
    """Evaluations without status ``ok``."""
    n_skipped: int = 0
    """Planned evaluations that the budget or a stop prevented."""
    best_params: Params | None
    """Parameters of the recommended candidate; ``None`` before the first reward."""
    best_name: str | None = None
    """Display name of that candidate."""
    best_mean: float | None
    best_interval: tuple[float, float] | None
    """95 % credible interval of its mean reward."""
    n_calls: int
    """Calls of the run so far, including retries."""
    cost_usd: float | None
    n_unpriced: int = 0
    """Calls of unknown price, which ``cost_usd`` excludes."""
    warm_start: str | None = None
    """Current trust in earlier runs, in words; ``None`` without earlier runs."""
    learning: tuple[str, ...] = ()
    """One redacted line per learner on its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWarned:
    """A limit of the budget is close; sent once per share."""

    text: str
    """Limit, share and spending, in words."""
    share: float | None = None
    """Share of the limit that was crossed; ``None`` for other warnings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficChanged:
    """A provider slows the run down, or stops doing so."""

    text: str
    """Endpoint, reason and action, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingStopped:
    """The run continues without hypotheses."""

    text: str
    """Reason, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalStarted:
    """The final test of the winner on fresh and held-out cells starts."""

    n_cells: int
    """0 if the budget left none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """Result of a run in few numbers (``convergence_core.result.verdict.outcome_of``)."""

    verdict: str
    """Kind of the verdict, e.g. ``likely``."""
    sentence: str
    """Verdict in words, with the next step."""
    title: Literal["recommended", "found"] = "recommended"
    """Name for ``params``: ``found`` if the run could not compare them with a champion."""
    params: Params | None
    """Recommended parameters; ``None`` if no candidate has a reward."""
    is_default: bool
    """Whether these are the defaults."""
    role: Role | None
    """Role of the cells behind both means; ``None`` if there are none."""
    mean: float | None
    """Mean reward of ``params``, in [0, 1]."""
    interval: tuple[float, float] | None
    """Its interval at ``level``."""
    baseline_mean: float | None
    """Mean reward of the defaults on the same cells; ``None`` if unknown."""
    baseline_interval: tuple[float, float] | None
    level: float
    """Confidence level of the intervals, e.g. 0.95."""
    n_calls: int
    """Calls made, including retries."""
    cost_usd: float | None
    """Total of known prices in US dollars; ``None`` if no price is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """All results are stored."""

    run_id: str
    status: Literal["done", "budget", "stopped", "failed"]
    reason: str
    outcome: RunOutcome | None = None
    """Result; ``None`` if the run ended without one."""


RunNotice: TypeAlias = BudgetWarned | TrafficChanged | ThinkingStopped
"""Notice to a user about a continuing run."""
Event: TypeAlias = (
    RunStarted
    | GenerationStarted
    | CellEvaluated
    | GenerationFinished
    | RunNotice
    | FinalStarted
    | RunFinished
)
Listener: TypeAlias = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded:
    """One attempt at a call has ended; sent to call listeners only."""

    run_id: str
    generation: int | None
    """``None`` during the final test, and for calls without an evaluation."""
    eval_id: str | None
    """Evaluation that pays; ``None`` if there is none."""
    candidate_id: str
    """Candidate of the cell; empty if there is none."""
    purpose: str
    """``evaluation``, ``judge``, ``thought``, ``sao``…"""
    provider: str
    request: Json
    """Request as sent, not redacted."""
    started_us: int
    ended_us: int
    attempt: int
    """Number of the attempt, from 1."""
    reply: Reply | None
    """Redacted answer; ``None`` if there is none."""
    fault: EvaluationFault | None
    """Reason for a missing answer, not redacted; ``None`` if there is an answer."""


@runtime_checkable
class CallListener(Protocol):
    """Receives each finished attempt at a call; must neither raise nor block."""

    def __call__(self, call: CallEnded) -> None:
        """Handle one attempt."""

    def close(self) -> None:
        """Send or discard the buffer; no attempt follows."""


@runtime_checkable
class RunListener(Protocol):
    """Receives the events of one run, in a separate thread; its failure never harms the run."""

    def on_event(self, event: Event) -> None:
        """Handle a redacted event; receives all events except ``CellEvaluated``."""

    def close(self) -> None:
        """Send or discard the buffer; safe to call twice, and before any event."""
