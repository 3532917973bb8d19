"""Runs as runs of MLflow and of Weights & Biases.

One run of MLflow for each run here, found again by its tag ``convergence.run_id``: a run that is
resumed goes on in the same one.

The id of the run there is the id of the run here, in small letters: a run that is resumed goes on
in the same one.
"""

import importlib.util
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from convergence_core.config.problems import guessed, listing
from convergence_core.errors import ConfigurationError
from convergence_core.events import Event, GenerationFinished, RunFinished, RunOutcome, RunStarted
from convergence_core.records import Json, fields_of
from tasks.json_values import as_text
from tasks.plugins.entry_points import PluginContext
from tasks.secrets.redaction import shortened
from tasks.version import install_command


def read_options(
    context: PluginContext, known: Mapping[str, tuple[str, ...] | None]
) -> dict[str, str]:
    """Return a listener's options, all of them texts.

    Args:
        context: holds them.
        known: option → its values; ``None`` means any text.

    Raises:
        ConfigurationError: one is unknown, no text, or none of its values.
    """
    options: dict[str, str] = {}
    for name, value in context.options.items():
        key = f"{context.key}.{name}"
        if name not in known:
            fix = guessed(name, [*known], f"Known are {listing([*known])}.")
            raise ConfigurationError.of(key, "is not a known option", fix)
        values = known[name]
        if not isinstance(value, str) or not value.strip():
            raise ConfigurationError.of(key, "must be a string", "Write one, or remove it.")
        if values is not None and value not in values:
            raise ConfigurationError.of(key, f"must be one of {listing(values)}", "Choose one.")
        options[name] = value
    return options


def check_installed(context: PluginContext, module: str) -> None:
    """Check that the package behind a shipped listener is there.

    Raises:
        ConfigurationError: its extra is missing.
    """
    if importlib.util.find_spec(module) is None:
        rule = f"needs the extra `{context.name}`, which is not installed"
        fix = f"Run: {install_command(context.name)}"
        raise ConfigurationError.of(context.key, rule, fix)


def described(event: RunStarted) -> dict[str, str]:
    """Return what describes a run, as texts."""
    names = ("system", "algorithm", "seed", "n_generations", "n_search_cases", "n_holdout_cases")
    return {name: str(value) for name, value in fields_of(event, *names).items()}


def generation_numbers(event: GenerationFinished) -> dict[str, float]:
    """Return the numbers of a generation that are known."""
    low, high = event.best_interval or (None, None)
    counts = fields_of(event, "best_mean", "n_evaluations", "n_failed", "n_calls", "cost_usd")
    return _known({**counts, "best_low": low, "best_high": high})


def outcome_numbers(outcome: RunOutcome) -> dict[str, float]:
    """Return the final numbers that are known."""
    low, high = outcome.interval or (None, None)
    baseline_low, baseline_high = outcome.baseline_interval or (None, None)
    return _known(
        {
            "recommended_mean": outcome.mean,
            "recommended_low": low,
            "recommended_high": high,
            "default_mean": outcome.baseline_mean,
            "default_low": baseline_low,
            "default_high": baseline_high,
            "total_calls": outcome.n_calls,
            "total_cost_usd": outcome.cost_usd,
        }
    )


def recommended_texts(outcome: RunOutcome) -> dict[str, str]:
    """Return the recommended settings as texts."""
    params = outcome.params or {}
    return {f"recommended.{name}": as_text(value) for name, value in params.items()}


def _known(numbers: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(number) for name, number in numbers.items() if number is not None}


RUN_TAG: Final = "convergence.run_id"
_STATUS: Final = {
    "done": "FINISHED",
    "budget": "FINISHED",
    "stopped": "KILLED",
    "failed": "FAILED",
}
_MAX_PARAM: Final = 6_000
"""Characters of a parameter's value that MLflow takes."""
_MAX_TAG: Final = 5_000
_MAX_PARAMS: Final = 100
"""Parameters that MLflow takes at once."""


class _Tracker(ABC):
    """Listener that writes a run's numbers elsewhere, once it has begun there."""

    has_begun = False

    def __init__(
        self, context: PluginContext, known: Mapping[str, tuple[str, ...] | None]
    ) -> None:
        self._options = read_options(context, known)
        check_installed(context, context.name)

    def on_event(self, event: Event) -> None:
        """Write what an event tells."""
        match event:
            case RunStarted():
                self._begin(event)
                self.has_begun = True
            case GenerationFinished() if self.has_begun:
                self._measure(generation_numbers(event), event.generation)
            case RunFinished() if self.has_begun:
                self._end(event)
            case _:
                pass

    @abstractmethod
    def _begin(self, event: RunStarted) -> None:
        """Begin the run there."""

    @abstractmethod
    def _measure(self, numbers: Mapping[str, float], step: int) -> None:
        """Write the numbers of a generation."""

    @abstractmethod
    def _end(self, event: RunFinished) -> None:
        """Write the outcome."""


class MlflowRuns(_Tracker):
    """Listener that writes a run's numbers to MLflow (extra ``mlflow``).

    Args:
        context: options ``tracking_uri`` (absent: MLflow's own choice, e.g. ``MLFLOW_TRACKING_URI``)
            and ``experiment`` (absent: ``convergence``).

    Raises:
        ConfigurationError: an option is unknown, or the extra is missing.
    """

    def __init__(self, context: PluginContext) -> None:
        super().__init__(context, {"tracking_uri": None, "experiment": None})
        self._client: Any = None
        self._run_id = ""

    def close(self) -> None:
        """Do nothing: each event was written when it came."""

    def _begin(self, event: RunStarted) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported
        from mlflow import MlflowClient  # noqa: PLC0415 - an extra's, and takes seconds

        self._client = MlflowClient(tracking_uri=self._options.get("tracking_uri"))
        experiment_id = self._experiment()
        query = f"tags.`{RUN_TAG}` = '{event.run_id}'"
        runs = self._client.search_runs([experiment_id], query, max_results=1)
        if runs:
            self._run_id = runs[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
            return
        tags = {RUN_TAG: event.run_id, "mlflow.source.name": "convergence"}
        made = self._client.create_run(experiment_id, run_name=event.label, tags=tags)
        self._run_id = made.info.run_id
        self._describe(described(event))

    def _experiment(self) -> str:
        """Return the id of the experiment, which another run may make at the same moment."""
        from mlflow.exceptions import MlflowException  # noqa: PLC0415 - as above

        name = self._options.get("experiment", "convergence")
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:
                experiment = self._client.get_experiment_by_name(name)
                if experiment is None:
                    raise
        return str(experiment.experiment_id)

    def _end(self, event: RunFinished) -> None:
        tags = {"convergence.reason": event.reason}
        if event.outcome is not None:
            tags["convergence.verdict"] = event.outcome.sentence
            self._measure(outcome_numbers(event.outcome))
            self._describe(recommended_texts(event.outcome))
        for name, words in tags.items():
            self._client.set_tag(self._run_id, name, shortened(words, _MAX_TAG, str))
        self._client.set_terminated(self._run_id, _STATUS[event.status])

    def _measure(self, numbers: Mapping[str, float], step: int = 0) -> None:
        from mlflow.entities import Metric  # noqa: PLC0415 - as above
        from mlflow.utils.time import get_current_time_millis  # noqa: PLC0415 - as above

        now = get_current_time_millis()
        metrics = [Metric(name, number, now, step) for name, number in numbers.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def _describe(self, values: Mapping[str, str]) -> None:
        from mlflow.entities import Param  # noqa: PLC0415 - as above

        params = [Param(name, shortened(words, _MAX_PARAM, str)) for name, words in values.items()]
        for first in range(0, len(params), _MAX_PARAMS):
            self._client.log_batch(self._run_id, params=params[first : first + _MAX_PARAMS])


_MODES: Final = ("online", "offline")


class WandbRuns(_Tracker):
    """Listener that writes a run's numbers to Weights & Biases (extra ``wandb``).

    Args:
        context: options ``project`` (absent: ``convergence``), ``entity`` (absent: the account's own),
            and ``mode``: ``online``, or ``offline``, which writes to ``wandb/`` beside the
            configuration and sends nothing.

    Raises:
        ConfigurationError: an option is unknown, or the extra is missing.
    """

    def __init__(self, context: PluginContext) -> None:
        super().__init__(context, {"project": None, "entity": None, "mode": _MODES})
        self._folder = context.base_dir
        self._run: Any = None

    def close(self) -> None:
        """Mark a run that nothing finished as failed."""
        self._finish(is_failed=True)

    def _begin(self, event: RunStarted) -> None:
        import wandb  # noqa: PLC0415 - an extra's

        mode: Any = self._options.get("mode", "online")
        # It would ask for a key at the terminal, and a night would wait for the answer.
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
            config={**described(event), "convergence_run_id": event.run_id},
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
        summary: dict[str, Json] = {"status": event.status, "reason": event.reason}
        if event.outcome is not None:
            summary |= {**outcome_numbers(event.outcome), "verdict": event.outcome.sentence}
            summary |= recommended_texts(event.outcome)
        self._run.summary.update(summary)
        self._finish(is_failed=event.status in {"stopped", "failed"})

    def _finish(self, *, is_failed: bool) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            run.finish(exit_code=1 if is_failed else 0)
