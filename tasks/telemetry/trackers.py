"""Runs in MLflow and in Weights & Biases.

A resumed run continues its tracker's run: MLflow identifies it by the tag ``convergence.run_id``,
Weights & Biases by the run's id in lower case.
"""

import contextlib
import importlib.util
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeAlias

from convergence_core.config.problems import guessed, listing
from convergence_core.errors import ConfigurationError
from convergence_core.events import Event, GenerationFinished, RunFinished, RunOutcome, RunStarted
from convergence_core.records import fields_of
from tasks.json_values import as_text
from tasks.plugins.entry_points import PluginContext
from tasks.secrets.redaction import shortened
from tasks.version import install_command

Options: TypeAlias = Mapping[str, tuple[str, ...] | None]
"""Option → its values; ``None`` means any string."""
RUN_TAG: Final = "convergence.run_id"
_DESCRIPTION: Final = (
    *("system", "algorithm", "seed", "n_generations", "n_search_cases"),
    "n_holdout_cases",
)
_STATUS: Final = {
    "done": "FINISHED",
    "budget": "FINISHED",
    "stopped": "KILLED",
    "failed": "FAILED",
}
_MAX_PARAM: Final = 6_000
"""Maximum characters of a parameter's value in MLflow."""
_MAX_TAG: Final = 5_000
_MAX_PARAMS: Final = 100
"""Maximum parameters in MLflow at the same time; further ones are dropped."""


def read_options(context: PluginContext, known: Options) -> dict[str, str]:
    """Return a listener's options as strings.

    Raises:
        ConfigurationError: an option is unknown, not a string, or not one of its values.
    """
    for name, value in context.options.items():
        key = f"{context.key}.{name}"
        if name not in known:
            fix = guessed(name, [*known], f"Known are {listing([*known])}.")
            raise ConfigurationError.of(key, "is not a known option", fix)
        if not isinstance(value, str) or not value.strip():
            raise ConfigurationError.of(key, "must be a string", "Write one, or remove it.")
        if value not in (known[name] or (value,)):
            rule = f"must be one of {listing(known[name] or ())}"
            raise ConfigurationError.of(key, rule, "Choose one.")
    return {name: str(value) for name, value in context.options.items()}


def known_numbers(
    counts: Mapping[str, float | None],
    **estimates: tuple[float | None, tuple[float, float] | None],
) -> dict[str, float]:
    """Return known counts and means, these with intervals as ``…_low`` and ``…_high``."""
    numbers = dict(counts)
    for name, (mean, ends) in estimates.items():
        low, high = ends or (None, None)
        numbers |= {f"{name}_mean": mean, f"{name}_low": low, f"{name}_high": high}
    return {name: float(number) for name, number in numbers.items() if number is not None}


def outcome_numbers(outcome: RunOutcome) -> dict[str, float]:
    """Return the known final numbers."""
    return known_numbers(
        {"total_calls": outcome.n_calls, "total_cost_usd": outcome.cost_usd},
        default=(outcome.baseline_mean, outcome.baseline_interval),
        **{outcome.title: (outcome.mean, outcome.interval)},
    )


def settings_texts(outcome: RunOutcome) -> dict[str, str]:
    """Return the recommended settings as strings."""
    params = outcome.params or {}
    return {f"{outcome.title}.{name}": as_text(value) for name, value in params.items()}


class _Tracker(ABC):
    """Listener that writes a run's numbers to a tracker, after starting a run there.

    Raises:
        ConfigurationError: an option is unknown, or the extra is missing.
    """

    known: ClassVar[Options]

    def __init__(self, context: PluginContext) -> None:
        self._options = read_options(context, self.known)
        self._folder = context.base_dir
        self._run: Any = None
        if importlib.util.find_spec(context.name) is None:
            rule = f"needs the extra `{context.name}`, which is not installed"
            fix = f"Run: {install_command(context.name)}"
            raise ConfigurationError.of(context.key, rule, fix)

    def on_event(self, event: Event) -> None:
        """Write an event to the tracker."""
        if isinstance(event, RunStarted):
            self._begin(
                event,
                {name: str(value) for name, value in fields_of(event, *_DESCRIPTION).items()},
            )
        elif isinstance(event, GenerationFinished) and self._run is not None:
            counts = fields_of(event, "n_evaluations", "n_failed", "n_calls", "cost_usd")
            best = event.best_mean, event.best_interval
            self._measure(known_numbers(counts, best=best), event.generation)
        elif isinstance(event, RunFinished) and self._run is not None:
            self._end(event)

    @abstractmethod
    def _begin(self, event: RunStarted, description: Mapping[str, str]) -> None:
        """Start the run in the tracker."""

    @abstractmethod
    def _measure(self, numbers: Mapping[str, float], step: int) -> None:
        """Write the numbers of a generation."""

    @abstractmethod
    def _end(self, event: RunFinished) -> None:
        """Write the outcome."""


class MlflowRuns(_Tracker):
    """Listener that writes a run's numbers to MLflow (extra ``mlflow``).

    Options are ``tracking_uri`` (default: MLflow's, e.g. ``MLFLOW_TRACKING_URI``) and
    ``experiment`` (default: ``convergence``).
    """

    known: ClassVar[Options] = {"tracking_uri": None, "experiment": None}
    _client: Any

    def close(self) -> None:
        """Do nothing: each event was written on arrival."""

    def _begin(self, event: RunStarted, description: Mapping[str, str]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read on import
        from mlflow import MlflowClient  # noqa: PLC0415 - an extra's, and takes seconds
        from mlflow.exceptions import MlflowException  # noqa: PLC0415 - as above

        client = self._client = MlflowClient(tracking_uri=self._options.get("tracking_uri"))
        name = self._options.get("experiment", "convergence")
        if client.get_experiment_by_name(name) is None:
            with contextlib.suppress(MlflowException):  # another run created it at the same time
                client.create_experiment(name)
        experiment_id = client.get_experiment_by_name(name).experiment_id
        query = f"tags.`{RUN_TAG}` = '{event.run_id}'"
        runs = client.search_runs([experiment_id], query, max_results=1)
        if runs:
            self._run = runs[0].info.run_id
            client.update_run(self._run, status="RUNNING")
            return
        tags = {RUN_TAG: event.run_id, "mlflow.source.name": "convergence"}
        self._run = client.create_run(experiment_id, run_name=event.label, tags=tags).info.run_id
        self._log({}, 0, description)

    def _measure(self, numbers: Mapping[str, float], step: int) -> None:
        self._log(numbers, step, {})

    def _end(self, event: RunFinished) -> None:
        tags = {"convergence.reason": event.reason}
        if event.outcome is not None:
            tags["convergence.verdict"] = event.outcome.sentence
            self._log(outcome_numbers(event.outcome), 0, settings_texts(event.outcome))
        for name, words in tags.items():
            self._client.set_tag(self._run, name, shortened(words, _MAX_TAG, str))
        self._client.set_terminated(self._run, _STATUS[event.status])

    def _log(self, numbers: Mapping[str, float], step: int, texts: Mapping[str, str]) -> None:
        from mlflow.entities import Metric, Param  # noqa: PLC0415 - as above

        now = time.time_ns() // 10**6
        metrics = [Metric(name, number, now, step) for name, number in numbers.items()]
        params = [Param(name, shortened(words, _MAX_PARAM, str)) for name, words in texts.items()]
        self._client.log_batch(self._run, metrics=metrics, params=params[:_MAX_PARAMS])


class WandbRuns(_Tracker):
    """Listener that writes a run's numbers to Weights & Biases (extra ``wandb``).

    Options are ``project`` (default: ``convergence``), ``entity`` (default: the account's), and
    ``mode``: ``online``, or ``offline``, which writes to ``wandb/`` next to the configuration and
    sends nothing.
    """

    known: ClassVar[Options] = {"project": None, "entity": None, "mode": ("online", "offline")}

    def close(self) -> None:
        """Mark an unfinished run as failed."""
        self._finish(is_failed=True)

    def _begin(self, event: RunStarted, description: Mapping[str, str]) -> None:
        import wandb  # noqa: PLC0415 - an extra's

        mode: Any = self._options.get("mode", "online")
        # It would prompt for a key at the terminal, and a nightly run would hang.
        if mode == "online" and not wandb.login(prompt=False):
            raise ConnectionError("no key is set: set WANDB_API_KEY, or write `mode: offline`")
        self._run = wandb.init(
            project=self._options.get("project", "convergence"),
            entity=self._options.get("entity"),
            mode=mode,
            dir=str(self._folder),
            id=event.run_id.lower(),
            name=event.label,
            resume="allow",
            reinit="create_new",
            config={**description, "convergence_run_id": event.run_id},
            settings=wandb.Settings(
                console="off",
                silent=True,
                disable_git=True,
                save_code=False,
                disable_job_creation=True,
                x_disable_stats=True,
                x_disable_meta=True,
            ),
        )

    def _measure(self, numbers: Mapping[str, float], step: int) -> None:
        self._run.log(numbers, step=step)

    def _end(self, event: RunFinished) -> None:
        summary: dict[str, object] = {"status": event.status, "reason": event.reason}
        if event.outcome is not None:
            summary |= {**outcome_numbers(event.outcome), "verdict": event.outcome.sentence}
            summary |= settings_texts(event.outcome)
        self._run.summary.update(summary)
        self._finish(is_failed=event.status in {"stopped", "failed"})

    def _finish(self, *, is_failed: bool) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            run.finish(exit_code=1 if is_failed else 0)
