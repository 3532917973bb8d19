"""Python interface: ``run_optimization``, its blocking twin and ``load_result``.

Flows are synchronous, because submitting tasks from async code costs fifty times more. A run
therefore executes in a worker thread, and both functions wait for it. This also works in
notebooks, whose event loop is busy.
"""

import asyncio
import concurrent.futures
import contextvars
import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from convergence.types import Config, OptimizationResult, TestCases
from convergence_core.errors import ConfigurationError, NoRewardError, Problem, RunInterruptedError
from convergence_core.events import CellEvaluated, Event, Listener

if TYPE_CHECKING:
    from convergence_core.result import RunResult
    from tasks.run.run import Run


class RunOptions(TypedDict, total=False):
    """Options of ``run_optimization``."""

    evaluator: Callable[..., Any] | str | None
    """Evaluator of ``function`` metrics that name no function: a callable or
    ``"module.function"``.
    """
    test_cases: TestCases | None
    """Test cases that replace the configuration's: cases, a path, or a function that returns
    cases.
    """
    local_function: Callable[..., Any] | str | None
    """Target that replaces the configuration's endpoint or function: a callable,
    ``"module.function"`` or ``"file.py:function"``.
    """
    on_event: Listener | None
    """Called with each event, from several threads. If it raises, the run stops cleanly and
    ``run_optimization`` re-raises the exception."""
    seed: int | None
    """Overrides ``optimization.seed``."""
    generations: int | None
    """Overrides ``optimization.evolution.generations``."""
    max_calls: int | None
    """Overrides ``budget.max_calls``."""
    max_usd: float | None
    """Overrides ``budget.max_usd``, US dollars."""
    logging_mode: Literal["silent", "summary", "verbose"]
    """``silent`` (default), ``summary`` (progress on standard error) or ``verbose`` (also
    Prefect's logs)."""
    resume: str | None
    """Label or id of an unfinished run to continue. Pass callables again; do not pass overrides.
    """


async def run_optimization(config: Config, **options: Unpack[RunOptions]) -> OptimizationResult:
    """Search for the best settings and return the result.

    Cancelling the task stops the run cleanly: calls in flight finish, paid answers are kept, and
    ``resume`` continues the run.

    Args:
        config: path of a configuration file, a mapping of the same form, or a
            ``ConvergenceConfig``.
        options: see ``RunOptions``.

    Returns:
        The best configuration with its score in [0, 1], and the full result with intervals.

    Raises:
        ConfigurationError: the configuration or a file that it names is wrong.
        NoRewardError: no candidate has a reward, for example because the metric returns no number.
        ConvergenceError: the run could not continue; see ``convergence_core.errors``.

    Example:
        >>> result = await run_optimization("optimization.yaml", generations=5, max_usd=2.0)
        >>> result.best_config, result.best_score
        ({"model": "small", "temperature": 0.3}, 0.82)
    """
    job = _Job(config, options)
    waiting = asyncio.wrap_future(job.start())
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        job.stop()
        await _end_of(waiting)
        raise


def run_optimization_sync(config: Config, **options: Unpack[RunOptions]) -> OptimizationResult:
    """Run ``run_optimization`` and wait for it, with or without a running event loop.

    Ctrl-C stops the run as cleanly as cancelling the task does. Arguments, result and errors are
    those of ``run_optimization``.

    Example:
        >>> def answer(question, temperature):
        ...     return client.ask(question, temperature=temperature)
        >>> result = run_optimization_sync("optimization.yaml", local_function=answer)
        >>> result["best_config"]
        {"temperature": 0.3}
    """
    job = _Job(config, options)
    done = job.start()
    try:
        return done.result()
    except KeyboardInterrupt:
        job.stop()
        concurrent.futures.wait([done])
        raise


def load_result(
    run: str | None = None, *, storage: str | Path = "./convergence-data"
) -> OptimizationResult:
    """Load the result of a finished run from the store.

    Args:
        run: label, id or unambiguous part of an id; by default the latest finished run.
        storage: folder of the store.

    Raises:
        RunNotFoundError: no such run exists, or it has not finished.

    Example:
        >>> load_result("slope-7f3a").best_score
        0.82
    """
    from convergence.finished_runs import finished_run  # noqa: PLC0415 - with the store
    from tasks.run.adoption import stored_result  # noqa: PLC0415 - as above
    from tasks.store.tables.parquet_store import ParquetStore  # noqa: PLC0415 - brings DuckDB

    store = ParquetStore(storage)
    return _result_of(stored_result(finished_run(store, run), store.path), ())


async def _end_of(waiting: "asyncio.Future[OptimizationResult]") -> None:
    """Wait until the run has ended, even if the caller cancels repeatedly."""
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError:
            continue
    # Reading the exception keeps asyncio from reporting it as never retrieved.
    waiting.exception()


@dataclass(slots=True)
class _Job:
    """A run in its own thread."""

    config: Config
    options: RunOptions
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _running: "Run | None" = field(default=None, init=False)
    _stopped: bool = field(default=False, init=False)
    _events: list[Event] = field(default_factory=list, init=False)
    _complaint: BaseException | None = field(default=None, init=False)
    """First exception that ``on_event`` raised."""

    def start(self) -> "concurrent.futures.Future[OptimizationResult]":
        """Start the run and return a future of its result."""
        from tasks.functions.user_functions import refuse_while_importing  # noqa: PLC0415 - as the parts below

        refuse_while_importing()
        pool = concurrent.futures.ThreadPoolExecutor(1, "run_optimization")
        # The context carries the caller's surrounding flow, if any.
        done = pool.submit(contextvars.copy_context().run, self._work)
        pool.shutdown(wait=False)
        return done

    def stop(self) -> None:
        """Stop the run cleanly, even before it has started."""
        with self._lock:
            self._stopped = True
            running = self._running
        if running is not None:
            running.stop()

    def _work(self) -> OptimizationResult:
        from convergence.optimize.execution import execute  # noqa: PLC0415 - with the first run
        from convergence.optimize.progress import ProgressDisplay, open_screen  # noqa: PLC0415 - as above

        mode = self.options.get("logging_mode", "silent")
        with ProgressDisplay(open_screen(quiet=mode == "silent")) as progress:
            running = self._open(self._tell(progress))
            with self._lock:
                self._running = running
                stopped = self._stopped
            if stopped:
                running.stop()
            try:
                result = execute(running, verbose=mode == "verbose")
            except RunInterruptedError:
                if self._complaint is not None:
                    raise self._complaint from None
                raise
        if self._complaint is not None:
            raise self._complaint
        if result.winner is None and result.status == "done":
            raise NoRewardError(f"{result.label}: {_describe_failure(result)}")
        return _result_of(result, self._events)

    def _open(self, listener: Listener) -> "Run":
        from convergence.optimize.inputs import load_config  # noqa: PLC0415 - brings pydantic
        from tasks.inputs.storage import store_path  # noqa: PLC0415 - as above
        from tasks.run.assembly import Caller  # noqa: PLC0415 - as above
        from tasks.run.opener import prepare_run, resume_run  # noqa: PLC0415 - as above

        options = self.options
        evaluator, local_function = options.get("evaluator"), options.get("local_function")
        loaded = load_config(
            self.config,
            evaluator=evaluator,
            test_cases=options.get("test_cases"),
            local_function=local_function,
        )
        caller = Caller(
            local_function=local_function if callable(local_function) else None,
            evaluator=evaluator if callable(evaluator) else None,
            on_event=listener,
        )
        if (run := options.get("resume")) is not None:
            self._refuse_overrides()
            return resume_run(store_path(loaded), run, **caller)
        return prepare_run(
            loaded,
            seed=options.get("seed"),
            generations=options.get("generations"),
            budget={"max_calls": options.get("max_calls"), "max_usd": options.get("max_usd")},
            **caller,
        )

    def _refuse_overrides(self) -> None:
        """Raise for any override: a resumed run continues with its original settings."""
        problems = [
            Problem(
                key=name,
                rule="must be absent when a run is resumed",
                value=str(value),
                fix="Remove it, or start a new run without `resume`.",
            )
            for name in ("seed", "generations", "max_calls", "max_usd")
            if (value := self.options.get(name)) is not None
        ]
        if problems:
            raise ConfigurationError(problems)

    def _tell(self, progress: Listener) -> Listener:
        on_event = self.options.get("on_event")

        def listen(event: Event) -> None:
            progress(event)
            if not isinstance(event, CellEvaluated):
                self._events.append(event)
            if on_event is None or self._complaint is not None:
                return
            try:
                on_event(event)
            except BaseException as error:  # noqa: BLE001 - raised again once the run has ended
                self._complaint = error
                # A separate thread: ``stop`` must not wait for this thread, which may be the
                # run's.
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
        error=None if winner is not None else _describe_failure(result),
        result=result,
    )


def _describe_failure(result: "RunResult") -> str:
    reasons = ", ".join(f"{failure.reason} ({failure.n} times)" for failure in result.failures)
    why = "every evaluation failed" if result.all_failed else "no candidate got a reward"
    example = next(
        (f" For example: {failure.example}" for failure in result.failures if failure.example), ""
    )
    return f"{why}: {reasons or result.reason}.{example}"
