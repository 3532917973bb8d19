"""Runs as runs of MLflow, by its client.

One run of MLflow for each run here, found again by its tag ``convergence.run_id``: a run that is
resumed goes on in the same one.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from convergence_core.events import (
    Event,
    GenerationFinished,
    RunFinished,
    RunStarted,
)
from tasks.json_values import as_text
from tasks.plugins.entry_points import PluginContext
from tasks.secrets.redaction import shortened
from tasks.telemetry.tracker_facts import (
    check_installed,
    described,
    generation_numbers,
    outcome_numbers,
    read_options,
)

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


class MlflowRuns:
    """Listener that writes a run's numbers to MLflow (extra ``mlflow``).

    Args:
        context: options ``tracking_uri`` (absent: MLflow's own choice, e.g. ``MLFLOW_TRACKING_URI``)
            and ``experiment`` (absent: ``convergence``).

    Raises:
        ConfigurationError: an option is unknown, or the extra is missing.
    """

    def __init__(self, context: PluginContext) -> None:
        self._options = read_options(context, {"tracking_uri": None, "experiment": None})
        check_installed(context, "mlflow")
        self._client: Any = None
        self._run_id = ""

    def on_event(self, event: Event) -> None:
        """Write what an event tells."""
        match event:
            case RunStarted():
                self._begin(event)
            case GenerationFinished() if self._run_id:
                self._measure(generation_numbers(event), step=event.generation)
            case RunFinished() if self._run_id:
                self._end(event)
            case _:
                pass

    def close(self) -> None:
        """Do nothing: each event was written when it came."""

    def _begin(self, event: RunStarted) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported
        from mlflow import MlflowClient  # noqa: PLC0415 - an extra's, and takes seconds

        self._client = MlflowClient(tracking_uri=self._options.get("tracking_uri"))
        experiment_id = self._experiment()
        query = f"tags.`{RUN_TAG}` = '{event.run_id}'"
        found = self._client.search_runs([experiment_id], query, max_results=1)
        if found:
            self._run_id = found[0].info.run_id
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
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _end(self, event: RunFinished) -> None:
        tags = {"convergence.reason": event.reason}
        if event.outcome is not None:
            tags["convergence.verdict"] = event.outcome.sentence
            self._measure(outcome_numbers(event.outcome))
            params = event.outcome.params or {}
            self._describe(
                {f"recommended.{name}": as_text(value) for name, value in params.items()}
            )
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
        for some in _parts(params):
            self._client.log_batch(self._run_id, params=some)


def _parts(params: list[Any]) -> Iterator[list[Any]]:
    for first in range(0, len(params), _MAX_PARAMS):
        yield params[first : first + _MAX_PARAMS]
