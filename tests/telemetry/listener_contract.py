"""Contract of a listener to runs, and the events of a whole run."""

from collections.abc import Mapping, Sequence
from typing import Any

from convergence.testing.contract import HOSTILE_TEXTS, PluginContract
from convergence_core.events import (
    BudgetWarned,
    Event,
    FinalStarted,
    GenerationFinished,
    GenerationStarted,
    RunFinished,
    RunListener,
    RunOutcome,
    RunStarted,
    ThinkingStopped,
    TrafficChanged,
)
from convergence_core.records import Json
from tasks.plugins.entry_points import PluginContext, find_plugin

_RUN = "01J8ZD0000000000000000RUNA"


class ListenerContract(PluginContract):
    """Every listener must pass these tests.

    ``plugin`` is in the group ``convergence.listeners``, ``options`` are those of
    ``telemetry.listeners``; what it sends to must answer, e.g. a ``LoopbackService``.
    """

    __test__ = False

    def test_a_whole_run_is_heard(self) -> None:
        """Also numbers that are unknown, and texts from anywhere."""
        self._hears(whole_run())

    def test_a_run_that_fails_is_heard(self) -> None:
        """There is no outcome then."""
        end = RunFinished(run_id=_RUN, status="failed", reason="out of memory")
        self._hears([started(), end])

    def test_a_resumed_run_is_heard_by_another_listener(self) -> None:
        """Another process goes on with the same id."""
        self._hears([started(), generation(0)])
        self._hears([started(resumed_from=1), generation(1), finished()])

    def test_it_may_be_closed_twice_and_unused(self) -> None:
        """A run may fail before its first event."""
        listener = self._made()
        listener.close()
        listener.close()

    def _made(self, options: Mapping[str, Json] | None = None) -> RunListener:
        context = PluginContext(
            name=self.plugin,
            options=self.options if options is None else options,
            key=f"telemetry.listeners.{self.plugin}",
            name_key="",
        )
        made: RunListener = find_plugin("convergence.listeners", context).make(
            context, methods=("on_event", "close")
        )
        return made

    def _hears(self, events: Sequence[Event]) -> None:
        listener = self._made()
        try:
            for event in events:
                listener.on_event(event)
        finally:
            listener.close()


def whole_run() -> list[Event]:
    """Return the events of a run of two generations, hostile texts among them."""
    return [
        started(),
        GenerationStarted(generation=0, n_candidates=2, n_cells=8),
        generation(0, best_params=None, best_mean=None, best_interval=None, cost_usd=None),
        *(BudgetWarned(text=text, share=0.8) for text in HOSTILE_TEXTS),
        TrafficChanged(text="the endpoint is slow"),
        ThinkingStopped(text="no thought was of use"),
        generation(1, best_params={"prompt": HOSTILE_TEXTS[-1], "k": [1, None, {"a": True}]}),
        FinalStarted(n_cells=4),
        finished(),
    ]


def started(**changes: Any) -> RunStarted:
    """Return the first event of a run."""
    fields: dict[str, Any] = {
        "label": "contract-7f3a",
        "system": "contract",
        "seed": 7,
        "algorithm": "mab_evolution",
        "n_generations": 2,
        "n_search_cases": 4,
        "n_holdout_cases": 2,
        "resumed_from": 0,
        "maybe_paid": (),
        "n_cells_planned": 16,
    }
    return RunStarted(run_id=_RUN, **{**fields, **changes})


def generation(number: int, **changes: Any) -> GenerationFinished:
    """Return the end of a generation."""
    fields: dict[str, Any] = {
        "n_evaluations": 8,
        "n_failed": 1,
        "best_params": {"temperature": 0.4},
        "best_mean": 0.7,
        "best_interval": (0.6, 0.8),
        "n_calls": 8 * (number + 1),
        "cost_usd": 0.01,
    }
    return GenerationFinished(generation=number, **{**fields, **changes})


def finished() -> RunFinished:
    """Return the end of a run that found something, some of it a hostile text."""
    outcome = RunOutcome(
        verdict="better",
        sentence="Better than the defaults.",
        params={"temperature": 0.4, "prompt": HOSTILE_TEXTS[-1], "empty": ""},
        is_default=False,
        role="holdout",
        mean=0.7,
        interval=(0.6, 0.8),
        baseline_mean=0.5,
        baseline_interval=(0.4, 0.6),
        level=0.95,
        n_calls=20,
        cost_usd=None,
    )
    return RunFinished(run_id=_RUN, status="done", reason="2 generations", outcome=outcome)
