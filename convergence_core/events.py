"""Events of a run for its listeners: progress bars, notebooks, logs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from convergence_core.errors import EvaluationFault
from convergence_core.ports import LostCall
from convergence_core.records import Json, Params, Reply, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The run has its lease and its journal."""

    run_id: str
    label: str
    """Short name for people, e.g. ``support_bot-7f3a``."""
    system: str = ""
    """Name of what is optimized, ``.offline`` behind it where a mock answers."""
    seed: int | None = None
    """Seed of the run."""
    algorithm: str
    n_generations: int
    n_search_cases: int
    n_holdout_cases: int
    resumed_from: int
    """Generations already committed; 0 for a new run."""
    maybe_paid: tuple[LostCall, ...]
    """Calls in flight when an earlier process died."""
    n_cells_planned: int
    """Search cells of all generations at most; the final re-estimation is not counted."""
    warm_start: str | None = None
    """What the run takes over from earlier ones, in words; ``None``: nothing."""
    continues: str | None = None
    """Which finished run it goes on from, in words; ``None``: it began anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationStarted:
    """A plan was made."""

    generation: int
    n_candidates: int
    n_cells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEvaluated:
    """One more cell has an outcome."""

    generation: int | None
    """``None`` during the final re-estimation."""
    reward: float | None
    cached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFinished:
    """A generation is committed."""

    generation: int
    n_evaluations: int
    n_failed: int
    """Evaluations that were made and have no ``ok`` status."""
    n_skipped: int = 0
    """Evaluations that were planned and not made: the budget refused them, or the run stopped."""
    best_params: Params | None
    """Parameters of the candidate that would be handed over; ``None``: no reward was seen yet."""
    best_name: str | None = None
    """Name of that candidate for people."""
    best_mean: float | None
    best_interval: tuple[float, float] | None
    """95 % credible interval of its mean reward."""
    n_calls: int
    """Calls of the run so far, retries included."""
    cost_usd: float | None
    warm_start: str | None = None
    """How far earlier runs are believed by now, in words; ``None``: there is none."""
    learning: tuple[str, ...] = ()
    """What each learner did, on a line without secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWarned:
    """A limit of the budget has come near; told once for each share."""

    text: str
    """In words: limit, share, and what is spent."""
    share: float | None = None
    """Share of the limit that was crossed; ``None``: something else about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficChanged:
    """A provider slowed the run down, or lets it go on."""

    text: str
    """In words: endpoint, reason, and what is done about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingStopped:
    """Nobody thinks in this run; it goes on without."""

    text: str
    """In words: why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalStarted:
    """The winner is being re-estimated on fresh and held-out cells."""

    n_cells: int
    """Zero when the budget left none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """What a run came to, in few numbers (``convergence_core.result.verdict.outcome_of``)."""

    verdict: str
    """Kind of the verdict, e.g. ``likely``."""
    sentence: str
    """The verdict in words, with what to do next."""
    params: Params | None
    """Recommended parameters; ``None``: no candidate has a reward."""
    is_default: bool
    """Whether these are the defaults."""
    role: Role | None
    """Cells that both means rest on: ``holdout``, ``fresh`` or ``search``; ``None``: there are none."""
    mean: float | None
    """Mean reward of the recommended parameters, in [0, 1]."""
    interval: tuple[float, float] | None
    """Its interval at ``level``."""
    baseline_params: Params | None
    """Default parameters; ``None``: the configuration has none, or they were never asked."""
    baseline_mean: float | None
    """Mean reward of the defaults on the same kind of cells; ``None``: not asked there."""
    baseline_interval: tuple[float, float] | None
    level: float
    """Probability that such an interval holds the mean, e.g. 0.95."""
    n_calls: int
    """Calls made, retries included."""
    cost_usd: float | None
    """Sum of known prices; ``None``: no call had one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """All results are written."""

    run_id: str
    status: Literal["done", "budget", "stopped", "failed"]
    reason: str
    outcome: RunOutcome | None = None
    """What it came to; ``None``: it ended before its result, or has none."""


RunNotice: TypeAlias = BudgetWarned | TrafficChanged | ThinkingStopped
"""What a person should know of a run that goes on."""
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
    """One attempt at a call has ended; for listeners to calls, which the events above have none of."""

    run_id: str
    generation: int | None
    """``None`` during the final re-estimation, and of calls for no evaluation."""
    eval_id: str | None
    """Evaluation that pays; ``None``: none does."""
    candidate_id: str
    """Whose cell it is for; empty: no candidate's."""
    purpose: str
    """``evaluation``, ``judge``, ``thought``, ``sao``…"""
    provider: str
    request: Json
    """The request as it was asked, not redacted."""
    started_us: int
    ended_us: int
    attempt: int
    """Number of the attempt, from 1."""
    reply: Reply | None
    """The answer, redacted; ``None``: there is none."""
    fault: EvaluationFault | None
    """Why there is no answer, not redacted; ``None``: there is one."""


@runtime_checkable
class CallListener(Protocol):
    """Hears of each attempt at a call that ends; must neither raise nor block."""

    def __call__(self, call: CallEnded) -> None:
        """Take note of one attempt."""
        ...

    def close(self) -> None:
        """Send or free what is held; nothing is told afterwards."""
        ...


@runtime_checkable
class RunListener(Protocol):
    """Hears of the events of one run, in a thread of its own; a fault of it harms no run."""

    def on_event(self, event: Event) -> None:
        """Take note of an event; its texts are redacted. ``CellEvaluated`` is not told."""
        ...

    def close(self) -> None:
        """Send or free what is held; may be called twice, and without any event."""
        ...
