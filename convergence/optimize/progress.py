"""Progress of a run: one line that changes in a terminal, plain lines elsewhere.

A listener of ``convergence_core.events`` writes it to standard error; events come from several threads.
"""

import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from convergence_core.events import (
    BudgetWarned,
    CellEvaluated,
    Event,
    FinalStarted,
    GenerationFinished,
    GenerationStarted,
    RunFinished,
    RunNotice,
    RunStarted,
    ThinkingStopped,
    TrafficChanged,
)
from convergence_core.ports import LostCall
from convergence_core.result.number_text import left_out, plural
from tasks.report.phrases import clean

if TYPE_CHECKING:
    from rich.console import Console

MOST_LOST_CALLS = 10
"""Maximum calls of unknown fate to list."""
PLAIN_INTERVAL_S = 30.0
"""Seconds between lines within one generation, outside a terminal."""


class Screen:
    """Screen that shows nothing, for ``--quiet`` and ``--json``; base of the other screens."""

    def line(self, text: str, style: str = "") -> None:
        """Write a permanent line."""

    def detail(self, text: str, style: str = "") -> None:
        """Write a line that the status also contains."""
        self.line(text, style)

    def status(self, text: str, done: int, total: int) -> None:
        """Replace the status."""

    def close(self) -> None:
        """Remove the status."""


class PlainScreen(Screen):
    """Plain lines for files and logs, with a status line from time to time."""

    def __init__(
        self, write: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._next = clock() + PLAIN_INTERVAL_S

    def line(self, text: str, style: str = "") -> None:
        """Write the line, unstyled."""
        del style
        self._write(clean(text))
        self._next = self._clock() + PLAIN_INTERVAL_S

    def status(self, text: str, done: int, total: int) -> None:
        """Write the status if no line was written for a while."""
        del done, total
        if self._clock() >= self._next:
            self.line(text)


class LiveScreen(Screen):
    """Lines above a status with a bar."""

    def __init__(self, console: "Console") -> None:
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - only for terminals
        from rich.table import Column  # noqa: PLC0415 - as above

        text = TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(overflow="ellipsis", no_wrap=True),
        )
        self._console = console
        self._bar = Progress(
            BarColumn(8), text, console=console, refresh_per_second=8, transient=True
        )
        self._task = self._bar.add_task("", total=None)
        self._bar.start()

    def line(self, text: str, style: str = "") -> None:
        """Write the line above the status."""
        self._console.print(clean(text), style=style, markup=False)

    def detail(self, text: str, style: str = "") -> None:
        """Write nothing: the status contains it."""

    def status(self, text: str, done: int, total: int) -> None:
        """Replace the status."""
        self._bar.update(self._task, description=clean(text), completed=done, total=total or None)

    def close(self) -> None:
        """Remove the status."""
        self._bar.stop()


class ProgressDisplay:
    """Listener of a run that turns events into lines and a status; a context manager."""

    def __init__(self, screen: Screen, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._started: RunStarted | None = None
        self._generation: int | None = None
        self._n_done = 0
        self._n_calls_made = 0
        self._n_planned = 0
        self._best = ""
        self._warm_start: str | None = None
        self._n_calls = 0
        self._cost = ""
        self._traffic = ""
        self._notices: set[str] = set()
        """Traffic notices so far, without their numbers."""

    def __enter__(self) -> Self:
        """Show that the run starts."""
        self._screen.status("reading the configuration and its cases", 0, 0)
        return self

    def waiting(self, text: str) -> None:
        """Show the reason for a wait."""
        self._screen.status(text, 0, 0)

    def __exit__(self, *_: object) -> None:
        """Remove the status."""
        self._screen.close()

    def say(self, text: str, style: str = "") -> None:
        """Write a line above the status."""
        with self._lock:
            self._screen.line(text, style)

    def __call__(self, event: Event) -> None:
        """Show one event."""
        with self._lock:
            match event:
                case RunStarted():
                    self._on_started(event)
                case GenerationStarted():
                    self._on_plan(event)
                case CellEvaluated():
                    self._n_done += 1
                    self._n_calls_made += not event.cached
                    if self._started is None:  # a test has no generations that end a notice
                        self._traffic = ""
                case GenerationFinished():
                    self._on_generation(event)
                case BudgetWarned() | TrafficChanged() | ThinkingStopped():
                    self._on_notice(event)
                case FinalStarted():
                    self._generation = None
                    self._n_planned = self._n_done + event.n_cells
                    self._screen.line(
                        f"final test: {plural(event.n_cells, 'new evaluation')} of the winner and "
                        "its opponents"
                    )
                case RunFinished():
                    # Other statuses raise exceptions that state the reason.
                    if event.status in {"done", "budget"}:
                        self._screen.line(f"{event.status}: {event.reason}")
                    return
            self._screen.status(self._status(), self._n_done, self._n_planned)

    def _on_started(self, event: RunStarted) -> None:
        self._started = event
        self._began = self._clock()
        self._n_planned = event.n_cells_planned
        cases = plural(event.n_search_cases, "case")
        if event.n_holdout_cases:
            cases += f" + {event.n_holdout_cases:,} held out"
        generations = plural(event.n_generations, "generation")
        self._screen.line(
            f"{event.label}: {event.algorithm}, up to {generations}, {cases}", style="bold"
        )
        for text in (event.warm_start, event.continues):
            if text is not None:
                self._screen.line(text)
        if event.resumed_from:
            done = plural(event.resumed_from, "generation")
            self._screen.line(f"resumed after {done}; repeats no finished call")
        if event.maybe_paid:
            for line in describe_maybe_paid(event.maybe_paid):
                self._screen.line(line, style="yellow")

    def _on_notice(self, event: RunNotice) -> None:
        """Write a notice.

        Traffic appears in the status, and as a line only if its words change.
        """
        if not isinstance(event, TrafficChanged):
            self._screen.line(event.text, style="yellow")
            return
        self._traffic = event.text
        words = re.sub(r"\d[\d.,]*", "", event.text)
        if words not in self._notices:
            self._notices.add(words)
            self._screen.detail(event.text, style="yellow")

    def _on_plan(self, event: GenerationStarted) -> None:
        """Plan the remaining generations at the size of this one, within the run's plan."""
        self._generation = event.generation
        if self._started is not None:
            rest = self._started.n_generations - event.generation
            expected = self._n_done + rest * event.n_cells
            self._n_planned = min(self._started.n_cells_planned, expected)

    def _on_generation(self, event: GenerationFinished) -> None:
        if event.best_mean is not None and event.best_interval is not None:
            low, high = event.best_interval
            self._best = f"best {event.best_mean:.3f} [{low:.3f}, {high:.3f}]"
        cost = left_out(event.n_unpriced)
        self._cost = f", ${event.cost_usd:.4f}{cost}" if event.cost_usd else ""
        self._n_calls = event.n_calls
        self._n_calls_made = 0
        self._traffic = ""
        failed = f", {event.n_failed} failed" if event.n_failed else ""
        failed += f", {event.n_skipped} skipped" if event.n_skipped else ""
        # Learners' lines follow the line of their generation.
        write = self._screen.line if event.learning else self._screen.detail
        write(
            f"generation {event.generation:02d}  "
            f"{plural(event.n_evaluations, 'evaluation')}{failed}{self._cost}  "
            f"{self._best or 'no reward yet'}  "
            f"{clean(event.best_name or '')}".rstrip()
        )
        for text in event.learning:
            self._screen.line(f"  {text}")
        if event.warm_start is not None and event.warm_start != self._warm_start:
            self._warm_start = event.warm_start
            self._screen.line(event.warm_start)

    def _status(self) -> str:
        if self._started is None:
            answers = plural(self._n_done, "answer") if self._n_done else "starting"
            return f"{answers} · {self._traffic}" if self._traffic else answers
        if self._generation is None:
            where = "final test" if self._n_done else "starting"
        else:
            number, n = self._generation, self._started.n_generations
            where = f"generation {number + 1}/{n}"
        parts = [
            where,
            self._best,
            f"{self._n_calls + self._n_calls_made} calls{self._cost}",
            f"{self._n_done}/{self._n_planned} done",
            self._time_left(),
            self._traffic,
        ]
        return " · ".join(part for part in parts if part)

    def _time_left(self) -> str:
        """Return the estimated time to the planned end; empty in the first second."""
        elapsed = self._clock() - self._began
        if not self._n_done or elapsed < 1:
            return ""
        left = max(0, self._n_planned - self._n_done) * elapsed / self._n_done
        return f"ETA {duration(left)}"


def open_screen(*, quiet: bool) -> Screen:
    """Return the screen for standard error."""
    if quiet:
        return Screen()
    from convergence.console import err  # noqa: PLC0415 - brings Rich

    console = err()
    if console.is_terminal:
        return LiveScreen(console)
    return PlainScreen(lambda text: console.print(text, markup=False))


def describe_maybe_paid(calls: Sequence[LostCall]) -> list[str]:
    """Return lines about calls of unknown fate, and their possible cost."""
    known = [call.max_usd for call in calls if call.max_usd is not None]
    worst = f", at most ${sum(known):.4f}" if known else ""
    unknown = len(calls) - len(known)
    if unknown:
        worst += f", {unknown} of unknown price" if known else ", price unknown"
    lines = [
        f"maybe paid: {plural(len(calls), 'call')} in flight when the last process ended{worst}"
    ]
    for call in calls[:MOST_LOST_CALLS]:
        price = "price unknown" if call.max_usd is None else f"at most ${call.max_usd:.6f}"
        model = f" {call.model}" if call.model else ""
        lines.append(f"  {call.purpose} {call.provider}{model} {call.call_key[:12]}: {price}")
    if len(calls) > MOST_LOST_CALLS:
        lines.append(f"  and {len(calls) - MOST_LOST_CALLS} more")
    return lines


def duration(seconds: float) -> str:
    """Return a readable duration: ``40s``, ``3m 20s``, ``2h 05m``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
