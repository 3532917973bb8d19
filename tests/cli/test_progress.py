"""What people see while a run goes on."""

import io
from dataclasses import replace

from rich.console import Console

from convergence.optimize.progress import LiveScreen, PlainScreen, ProgressDisplay, Screen
from convergence_core.events import (
    BudgetWarned,
    CellEvaluated,
    Event,
    GenerationFinished,
    GenerationStarted,
    RunStarted,
    TrafficChanged,
)
from convergence_core.ports import LostCall


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Recorder(Screen):
    """A screen that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.statuses: list[tuple[str, int, int]] = []

    def line(self, text: str, style: str = "") -> None:
        self.lines.append(text)

    def status(self, text: str, done: int, total: int) -> None:
        self.statuses.append((text, done, total))

    def close(self) -> None:
        self.lines.append("(closed)")


def started(**changes: object) -> RunStarted:
    fields: dict[str, object] = {
        "run_id": "01ABC", "label": "bot-7f3a", "algorithm": "mab_evolution", "n_generations": 3,
        "n_search_cases": 10, "n_holdout_cases": 5, "resumed_from": 0, "maybe_paid": (),
        "n_cells_planned": 300,
    }  # fmt: skip
    return RunStarted(**{**fields, **changes})  # type: ignore[arg-type]


def lost(call_key: str, max_usd: float | None, purpose: str = "evaluation") -> LostCall:
    return LostCall(
        call_key=call_key, attempt=1, purpose=purpose, provider="openai", model="small",
        started_us=0, max_usd=max_usd,
    )  # fmt: skip


FINISHED = GenerationFinished(
    generation=0, n_evaluations=100, n_failed=2, best_params={"model": "small", "t": 0.7}, best_name="small · t 0.7",
    best_mean=0.7341, best_interval=(0.69, 0.78), n_calls=104, cost_usd=None,
)  # fmt: skip
CELL = CellEvaluated(generation=0, reward=1.0, cached=False)


def told(*events: Event) -> Recorder:
    screen = Recorder()
    with ProgressDisplay(screen, clock=Clock()) as progress:
        for event in events:
            progress(event)
    return screen


def test_generation_is_told_with_failures_best_interval_and_parameters():
    assert told(started(), FINISHED).lines[1] == (
        "generation 00  100 evaluations, 2 failed  best 0.734 [0.690, 0.780]  small · t 0.7"
    )


def test_resumed_run_says_so_and_what_was_maybe_paid():
    calls = (lost("a" * 64, 0.0125), lost("b" * 64, None, purpose="judge"))
    lines = told(started(resumed_from=1, maybe_paid=calls)).lines
    assert "resumed after 1 generation" in lines[1]
    assert lines[2] == (
        "maybe paid: 2 calls in flight when the last process ended, at most $0.0125, "
        "1 of unknown price"
    )
    assert lines[3] == "  evaluation openai small aaaaaaaaaaaa: at most $0.012500"
    assert lines[4] == "  judge openai small bbbbbbbbbbbb: price unknown"


def test_a_slower_provider_is_one_line_whose_numbers_change_in_the_status():
    screen = told(
        started(),
        TrafficChanged(text="slowed down to 8 in flight: HTTP 429, 1.5 s"),
        TrafficChanged(text="slowed down to 4 in flight: HTTP 429, 12 s"),
        TrafficChanged(text="paused for 9 s, as api.example.com asks"),
    )
    assert screen.lines[1:3] == [
        "slowed down to 8 in flight: HTTP 429, 1.5 s",
        "paused for 9 s, as api.example.com asks",
    ]
    assert screen.statuses[-2][0].endswith("slowed down to 4 in flight: HTTP 429, 12 s")


def test_status_counts_evaluations_and_estimates_the_rest():
    screen, clock = Recorder(), Clock()
    progress = ProgressDisplay(screen, clock=clock)
    progress(started())
    progress(GenerationStarted(generation=0, n_candidates=5, n_cells=50))
    clock.now = 10.0
    for _ in range(25):
        progress(CELL)
    text, done, total = screen.statuses[-1]
    assert (done, total) == (25, 150)
    assert text == "generation 1/3 · 25 calls · 25/150 done · ETA 50s"
    progress(replace(FINISHED, cost_usd=0.0123, n_unpriced=3))
    progress(TrafficChanged(text="slowed down"))
    best = "best 0.734 [0.690, 0.780] · 104 calls, $0.0123 and 3 calls of unknown price"
    text = screen.statuses[-1][0]
    assert text == f"generation 1/3 · {best} · 25/150 done · ETA 50s · slowed down"


def test_a_notice_cannot_drive_the_terminal():
    lines: list[str] = []
    with ProgressDisplay(PlainScreen(lines.append)) as show:
        show(TrafficChanged(text="HTTP 500: \x1b[2Jgone"))
        show(BudgetWarned(text="90 % \x07"))
    assert lines == ["HTTP 500: \ufffd[2Jgone", "90 % \ufffd"]


def test_live_screen_keeps_lines_and_removes_the_bar():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, highlight=False)
    with ProgressDisplay(LiveScreen(console), clock=Clock()) as progress:
        progress(started())
        progress(GenerationStarted(generation=0, n_candidates=5, n_cells=50))
        progress(CELL)
        progress(FINISHED)
        progress(TrafficChanged(text="slowed down"))
        progress(replace(FINISHED, generation=1, learning=("thoughts: learned",)))
    text = file.getvalue()
    assert "generation 00" not in text  # the status has it
    assert "generation 1/3 · best 0.734 [0.690, 0.780] · 104 calls" in text
    assert "slowed down\n" not in text
    assert "generation 01" in text  # above the lines of its learners
    assert "  thoughts: learned" in text
    assert "\x1b[?25h" in text  # the cursor is shown again
