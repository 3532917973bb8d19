"""Progress of a run: a live line in a terminal, plain lines elsewhere.

Written to standard error by a listener of ``convergence_core.events``; events come from several
threads.
"""

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
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
from convergence_core.records import ParamValue, short_id
from convergence_core.result.number_text import plural
from tasks.report.phrases import clean, short, value_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

MOST_LOST_CALLS = 10
"""Calls of unknown fate that are listed one by one."""
MANY_PARAMS = 3
"""Parameters of a candidate that one line shows."""
LONGEST_PARAM = 24
"""Characters of a parameter's value on that line."""
PLAIN_INTERVAL_S = 30.0
"""Without a terminal: seconds between lines within one generation."""


class Screen:
    """Shows nothing; what ``--quiet`` and ``--json`` ask for, and the base of what shows."""

    def line(self, text: str, style: str = "") -> None:
        """Write a line that stays."""

    def status(self, text: str, done: int, total: int) -> None:
        """Show where the run stands, in place of what was shown before."""

    def close(self) -> None:
        """Remove the status."""


class PlainScreen(Screen):
    """Lines only, for files and logs; a status line now and then."""

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
        """Write the status if nothing was written for a while."""
        del done, total
        if self._clock() >= self._next:
            self.line(text)


class LiveScreen(Screen):
    """Lines above a bar that moves."""

    def __init__(self, console: "Console") -> None:
        from rich.live import Live  # noqa: PLC0415 - only for terminals

        self._console = console
        self._text, self._done, self._total = "", 0, 0
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=8, transient=True
        )
        self._live.start()

    def line(self, text: str, style: str = "") -> None:
        """Write the line above the bar."""
        self._console.print(clean(text), style=style, markup=False)

    def status(self, text: str, done: int, total: int) -> None:
        """Move the bar."""
        self._text, self._done, self._total = clean(text), done, total

    def close(self) -> None:
        """Take the bar away."""
        self._live.stop()

    def _render(self) -> "RenderableType":
        from rich.progress_bar import ProgressBar  # noqa: PLC0415 - only for terminals
        from rich.table import Table  # noqa: PLC0415 - as above
        from rich.text import Text  # noqa: PLC0415 - as above

        grid = Table.grid(padding=(0, 1))
        bar = ProgressBar(
            total=self._total or None, completed=self._done, width=8, pulse=not self._total
        )
        grid.add_row(bar, Text(self._text, overflow="ellipsis", no_wrap=True))
        return grid


class NewTexts:
    """Tells texts that were not seen yet; those that differ in numbers alone count as one."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, text: str) -> bool:
        """Return whether a text is new, and remember it."""
        words = re.sub(r"\d[\d.,]*", "", text)
        is_new = words not in self._seen
        self._seen.add(words)
        return is_new


class ProgressDisplay:
    """Turns events into words; a context manager and the run's listener."""

    def __init__(self, screen: Screen, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._started: RunStarted | None = None
        self._generation: int | None = None
        self._n_done = 0
        self._n_asked = 0
        self._n_planned = 0
        self._best = ""
        self._warm_start: str | None = None
        self._n_calls = 0
        self._traffic = ""
        self._is_new = NewTexts()

    def __enter__(self) -> Self:
        """Begin to show."""
        self._screen.status("reading the configuration and its cases", 0, 0)
        return self

    def waiting(self, text: str) -> None:
        """Show what is being waited for."""
        self._screen.status(text, 0, 0)

    def __exit__(self, *_: object) -> None:
        """End the live line, whatever happened."""
        self._screen.close()

    def say(self, text: str, style: str = "") -> None:
        """Write a line of the caller's own among the progress."""
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
                    self._n_asked += not event.cached
                case GenerationFinished():
                    self._on_generation(event)
                case BudgetWarned() | TrafficChanged() | ThinkingStopped():
                    self._on_notice(event)
                case FinalStarted():
                    self._generation = None
                    self._n_planned = self._n_done + event.n_cells
                    self._screen.line(
                        f"final test: {plural(event.n_cells, 'evaluation')} of the winner and of "
                        "what it is compared with, none used by the search"
                    )
                case RunFinished():
                    # Other ends are exceptions, and whoever catches them tells why.
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
            self._screen.line(f"resumed after {done}; finished calls are not made again")
        if event.maybe_paid:
            for line in describe_maybe_paid(event.maybe_paid):
                self._screen.line(line, style="yellow")

    def _on_notice(self, event: RunNotice) -> None:
        """Write a line; what changes about traffic in numbers alone is a part of the status."""
        if isinstance(event, TrafficChanged):
            self._traffic = event.text
            if not self._is_new(event.text):
                return
        self._screen.line(event.text, style="yellow")

    def _on_plan(self, event: GenerationStarted) -> None:
        """Take this generation's size for that of the rest, as far as the plan allows it."""
        self._generation = event.generation
        if self._started is not None:
            rest = self._started.n_generations - event.generation
            expected = self._n_done + rest * event.n_cells
            self._n_planned = min(self._started.n_cells_planned, expected)

    def _on_generation(self, event: GenerationFinished) -> None:
        if event.best_mean is not None and event.best_interval is not None:
            low, high = event.best_interval
            self._best = f"best {event.best_mean:.3f} [{low:.3f}, {high:.3f}]"
        self._n_calls = event.n_calls
        self._n_asked = 0
        self._traffic = ""
        failed = f", {event.n_failed} failed" if event.n_failed else ""
        failed += f", {event.n_skipped} not asked" if event.n_skipped else ""
        cost = f", ${event.cost_usd:.4f}" if event.cost_usd else ""
        self._screen.line(
            f"generation {event.generation:02d}  "
            f"{plural(event.n_evaluations, 'evaluation')}{failed}{cost}  "
            f"{self._best or 'no reward yet'}  "
            f"{f'{short_id(event.best_id)} ' if event.best_id else ''}"
            f"{shown_params(event.best_params or {})}".rstrip()
        )
        for text in event.learning:
            self._screen.line(f"  {text}")
        if event.warm_start is not None and event.warm_start != self._warm_start:
            self._warm_start = event.warm_start
            self._screen.line(event.warm_start)

    def _status(self) -> str:
        if self._started is None:
            return "starting"
        if self._generation is None:
            where = "final test" if self._n_done else "starting"
        else:
            number, n = self._generation, self._started.n_generations
            where = f"generation {number:02d} ({number + 1}/{n})"
        parts = [
            where,
            f"{self._n_done}/{self._n_planned} done",
            self._time_left(),
            f"{self._n_calls + self._n_asked} calls",
            self._best,
            self._traffic,
        ]
        return " · ".join(part for part in parts if part)

    def _time_left(self) -> str:
        """Return the time to the planned end, or nothing before there is a rate to tell it by."""
        elapsed = self._clock() - self._began
        if not self._n_done or elapsed < 1:
            return ""
        left = max(0, self._n_planned - self._n_done) * elapsed / self._n_done
        return f"ETA {duration(left)}"


def open_screen(*, quiet: bool) -> Screen:
    """Return the screen that suits standard error."""
    if quiet:
        return Screen()
    from convergence.console import err  # noqa: PLC0415 - brings Rich

    console = err()
    if console.is_terminal:
        return LiveScreen(console)
    return PlainScreen(lambda text: console.print(text, markup=False))


def describe_maybe_paid(calls: Sequence[LostCall]) -> list[str]:
    """Return lines that say which calls nobody saw the end of, and what they may have cost."""
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
    """Return a time span as people read it: ``40s``, ``3m 20s``, ``2h 05m``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


def shown_params(params: Mapping[str, ParamValue], n: int = MANY_PARAMS) -> str:
    """Return the first parameters of a candidate on one short line."""
    shown = []
    for name, value in list(params.items())[:n]:
        text = f"{value:.4g}" if isinstance(value, float) else value_text(value)
        shown.append(f"{name}={short(text, LONGEST_PARAM)}")
    return " ".join([*shown, *([f"+{len(params) - n} more"] if len(params) > n else [])])
