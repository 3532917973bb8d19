"""The Python interface: ``run_optimization`` and ``run_optimization_sync``.

Flows are synchronous, for submitting from async code costs fifty times more; so a run lives in a
worker thread, and both functions wait for it. That works in notebooks, whose event loop is busy.
"""

import asyncio
import concurrent.futures
import contextvars
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from convergence_core.errors import ConfigurationError, Problem, RunInterruptedError
from convergence_core.events import CellEvaluated, Event, Listener

if TYPE_CHECKING:
    from convergence.types import ConvergenceConfig
    from convergence_core.config import Configuration
    from convergence_core.result import RunResult
    from tasks.run.run import Run

Config: TypeAlias = "str | Path | Mapping[str, Any] | ConvergenceConfig | Configuration"
TestCases: TypeAlias = (
    str | Path | Iterable[Mapping[str, Any]] | Callable[[], Iterable[Mapping[str, Any]]]
)
LoggingMode = Literal["silent", "summary", "verbose"]


class Evaluator(Protocol):
    """What judges an answer, in the original's newer form.

    A function ``f(result, expected, params, metric) -> float`` will do as well. Either may be
    async.
    """

    def __call__(
        self,
        prediction: dict[str, Any],
        expected: Any,
        *,
        context: dict[str, Any] | None = None,
    ) -> dict[str, float]:
        """Return metric → number; the answer is ``prediction["result"]``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizationResult:
    """What a run found. The original's fields, also by key: ``result["best_config"]``."""

    success: bool
    """Whether there is a candidate to hand over."""
    best_config: dict[str, Any]
    """Parameters of the candidate handed over; empty without one."""
    best_score: float
    """Its mean reward in [0, 1] on held-out cases, else on search cases asked again, else as the
    search saw it; NaN without a candidate. ``result.winner`` has all three with intervals."""
    configs_generated: int
    """Different candidates evaluated."""
    generations_run: int
    optimization_run_id: str
    timestamp: datetime
    """End of the run."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """What happened, cells left out: ``event`` and the fields of the event."""
    error: str | None = None
    """Why there is no candidate; ``None`` on success."""
    result: "RunResult"
    """Everything: intervals, held-out results, the defaults beside the winner, files."""

    def __getitem__(self, name: str) -> Any:
        """Return a field by name, as the original's examples do.

        Raises:
            KeyError: there is no such field.
        """
        if name not in self.__slots__:
            raise KeyError(name)
        return getattr(self, name)


async def run_optimization(
    config: Config,
    *,
    evaluator: Callable[..., Any] | str | None = None,
    test_cases: TestCases | None = None,
    local_function: Callable[..., Any] | str | None = None,
    on_event: Listener | None = None,
    seed: int | None = None,
    generations: int | None = None,
    max_calls: int | None = None,
    max_usd: float | None = None,
    logging_mode: LoggingMode = "silent",
    resume: str | None = None,
) -> OptimizationResult:
    """Run an optimization and return what it found.

    Cancelling the task ends the run cleanly: calls in flight are waited for, all that was paid is
    kept, and ``resume`` goes on with it.

    Args:
        config: path of a configuration file, a mapping of its form, or a ``ConvergenceConfig``.
        evaluator: judges answers for the metrics of type ``function`` that name no function
            themselves; a callable, or ``"module.function"``.
        test_cases: cases, a path to them, or a function that returns them; in place of the
            configuration's.
        local_function: what is optimized; a callable, ``"module.function"`` or
            ``"file.py:function"``; in place of the configuration's endpoint or function.
        on_event: is told what happens, from several threads; if it raises, the run is ended
            cleanly and the exception raised here.
        seed: in place of ``optimization.seed``.
        generations: in place of ``optimization.evolution.generations``.
        max_calls: in place of ``budget.max_calls``.
        max_usd: in place of ``budget.max_usd``.
        logging_mode: ``silent``; ``summary``: progress on standard error; ``verbose``: Prefect's
            logs too.
        resume: label or id of an unfinished run to go on with. Callables must be given again.

    Raises:
        ConfigurationError: the configuration or a file it names is wrong.
        ConvergenceError: the run could not go on; see ``convergence_core.errors``.
    """
    job = _Job(
        config,
        evaluator=evaluator,
        test_cases=test_cases,
        local_function=local_function,
        on_event=on_event,
        overrides=_Overrides(
            seed=seed, generations=generations, max_calls=max_calls, max_usd=max_usd
        ),
        logging_mode=logging_mode,
        resume=resume,
    )
    done = job.start()
    waiting = asyncio.wrap_future(done)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        job.stop()
        await _end_of(waiting)
        raise


def run_optimization_sync(
    config: Config,
    *,
    evaluator: Callable[..., Any] | str | None = None,
    test_cases: TestCases | None = None,
    local_function: Callable[..., Any] | str | None = None,
    on_event: Listener | None = None,
    seed: int | None = None,
    generations: int | None = None,
    max_calls: int | None = None,
    max_usd: float | None = None,
    logging_mode: LoggingMode = "silent",
    resume: str | None = None,
) -> OptimizationResult:
    """Do as ``run_optimization`` and wait; works with and without a running event loop.

    Ctrl-C ends the run cleanly, as cancelling does there.
    """
    job = _Job(
        config,
        evaluator=evaluator,
        test_cases=test_cases,
        local_function=local_function,
        on_event=on_event,
        overrides=_Overrides(
            seed=seed, generations=generations, max_calls=max_calls, max_usd=max_usd
        ),
        logging_mode=logging_mode,
        resume=resume,
    )
    done = job.start()
    try:
        return done.result()
    except KeyboardInterrupt:
        job.stop()
        concurrent.futures.wait([done])
        raise


async def _end_of(waiting: "asyncio.Future[OptimizationResult]") -> None:
    """Wait until the run has ended, however it ends and however often we are cancelled."""
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError:
            continue
    # The exception is looked at, so that asyncio does not report it as never retrieved.
    waiting.exception()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Overrides:
    seed: int | None
    generations: int | None
    max_calls: int | None
    max_usd: float | None

    def refuse(self) -> None:
        """Raise if there are any: a resumed run goes on as it began."""
        problems = [
            Problem(
                key=name,
                rule="must be absent when a run is resumed",
                value=str(value),
                fix="Remove it, or begin a new run without `resume`.",
            )
            for name, value in asdict(self).items()
            if value is not None
        ]
        if problems:
            raise ConfigurationError(problems)


class _Job:
    """One run in a thread of its own."""

    def __init__(
        self,
        config: Config,
        *,
        evaluator: Callable[..., Any] | str | None,
        test_cases: TestCases | None,
        local_function: Callable[..., Any] | str | None,
        on_event: Listener | None,
        overrides: _Overrides,
        logging_mode: LoggingMode,
        resume: str | None,
    ) -> None:
        self._config = config
        self._evaluator = evaluator
        self._test_cases = test_cases
        self._local_function = local_function
        self._on_event = on_event
        self._overrides = overrides
        self._logging_mode = logging_mode
        self._resume = resume
        self._lock = threading.Lock()
        self._running: Run | None = None
        self._stopped = False
        self._events: list[Event] = []
        self._complaint: BaseException | None = None
        """What ``on_event`` raised first."""

    def start(self) -> "concurrent.futures.Future[OptimizationResult]":
        """Begin; the future ends when the run has ended."""
        from tasks.functions.user_functions import refuse_while_importing  # noqa: PLC0415 - as the parts below

        refuse_while_importing()
        done: concurrent.futures.Future[OptimizationResult] = concurrent.futures.Future()
        done.set_running_or_notify_cancel()

        def work() -> None:
            try:
                done.set_result(self._work())
            except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
                done.set_exception(error)

        # The context carries a surrounding flow of the caller's, if there is one.
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(work,), name="run_optimization").start()
        return done

    def stop(self) -> None:
        """End the run cleanly, also if it has not begun yet."""
        with self._lock:
            self._stopped = True
            running = self._running
        if running is not None:
            running.stop()

    def _work(self) -> OptimizationResult:
        from convergence.optimize.execution import execute  # noqa: PLC0415 - with the first run
        from convergence.optimize.progress import ProgressDisplay, open_screen  # noqa: PLC0415 - as above

        with ProgressDisplay(open_screen(quiet=self._logging_mode == "silent")) as progress:
            running = self._open(self._tell(progress))
            with self._lock:
                self._running = running
                stopped = self._stopped
            if stopped:
                running.stop()
            try:
                result = execute(running, verbose=self._logging_mode == "verbose")
            except RunInterruptedError:
                if self._complaint is not None:
                    raise self._complaint from None
                raise
        if self._complaint is not None:
            raise self._complaint
        return _result_of(result, self._events)

    def _open(self, listener: Listener) -> "Run":
        from convergence.optimize.inputs import load_config  # noqa: PLC0415 - brings pydantic
        from tasks.inputs.storage import store_path  # noqa: PLC0415 - as above
        from tasks.run.opener import prepare_run, resume_run  # noqa: PLC0415 - as above

        loaded = load_config(
            self._config,
            evaluator=self._evaluator,
            test_cases=self._test_cases,
            local_function=self._local_function,
        )
        evaluator = self._evaluator if callable(self._evaluator) else None
        function = self._local_function if callable(self._local_function) else None
        if self._resume is not None:
            self._overrides.refuse()
            return resume_run(
                store_path(loaded),
                self._resume,
                local_function=function,
                evaluator=evaluator,
                on_event=listener,
            )
        return prepare_run(
            loaded,
            seed=self._overrides.seed,
            generations=self._overrides.generations,
            budget={
                "max_calls": self._overrides.max_calls,
                "max_usd": self._overrides.max_usd,
            },
            local_function=function,
            evaluator=evaluator,
            on_event=listener,
        )

    def _tell(self, progress: Listener) -> Listener:
        def listen(event: Event) -> None:
            progress(event)
            if not isinstance(event, CellEvaluated):
                self._events.append(event)
            if self._on_event is None or self._complaint is not None:
                return
            try:
                self._on_event(event)
            except BaseException as error:  # noqa: BLE001 - raised again once the run has ended
                self._complaint = error
                # In a thread: this one may be the run's own, which stopping must not wait for.
                threading.Thread(target=self.stop, name="stop", daemon=True).start()

        return listen


def _result_of(result: "RunResult", events: Iterable[Event]) -> OptimizationResult:
    winner = result.winner
    score = math.nan
    if winner is not None:
        score = winner.headline()[1].mean
    return OptimizationResult(
        success=winner is not None,
        best_config={} if winner is None else dict(winner.params),
        best_score=score,
        configs_generated=result.n_candidates,
        generations_run=result.generations_run,
        optimization_run_id=result.run_id,
        timestamp=datetime.fromtimestamp(result.ended_us / 1e6, UTC),
        events=[{"event": type(event).__name__, **asdict(event)} for event in events],
        error=None if winner is not None else _told_failure(result),
        result=result,
    )


def _told_failure(result: "RunResult") -> str:
    reasons = ", ".join(f"{failure.reason} ({failure.n} times)" for failure in result.failures)
    why = "every evaluation failed" if result.all_failed else "no candidate got a reward"
    return f"{why}: {reasons or result.reason}"
