"""Runs as runs of Weights & Biases.

The id of the run there is the id of the run here, in small letters: a run that is resumed goes on
in the same one.
"""

from typing import Any, Final

from convergence_core.events import Event, GenerationFinished, RunFinished, RunStarted
from convergence_core.records import Json
from tasks.json_values import as_text
from tasks.plugins.entry_points import PluginContext
from tasks.telemetry.tracker_facts import (
    check_installed,
    described,
    generation_numbers,
    outcome_numbers,
    read_options,
)

_MODES: Final = ("online", "offline")


class WandbRuns:
    """Listener that writes a run's numbers to Weights & Biases (extra ``wandb``).

    Args:
        context: options ``project`` (absent: ``convergence``), ``entity`` (absent: the account's own),
            and ``mode``: ``online``, or ``offline``, which writes to ``wandb/`` beside the
            configuration and sends nothing.

    Raises:
        ConfigurationError: an option is unknown, or the extra is missing.
    """

    def __init__(self, context: PluginContext) -> None:
        self._options = read_options(context, {"project": None, "entity": None, "mode": _MODES})
        check_installed(context, "wandb")
        self._folder = context.base_dir
        self._run: Any = None

    def on_event(self, event: Event) -> None:
        """Write what an event tells."""
        match event:
            case RunStarted():
                self._run = self._begun(event)
            case GenerationFinished() if self._run is not None:
                self._run.log(generation_numbers(event), step=event.generation)
            case RunFinished() if self._run is not None:
                self._end(event)
            case _:
                pass

    def close(self) -> None:
        """Mark a run that nothing finished as failed."""
        self._finish(is_failed=True)

    def _begun(self, event: RunStarted) -> Any:
        import wandb  # noqa: PLC0415 - an extra's

        mode: Any = self._options.get("mode", "online")
        # It would ask for a key at the terminal, and a night would wait for the answer.
        if mode == "online" and not wandb.login(prompt=False):
            raise ConnectionError("no key is set: set WANDB_API_KEY, or write `mode: offline`")
        return wandb.init(
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

    def _end(self, event: RunFinished) -> None:
        summary: dict[str, Json] = {"status": event.status, "reason": event.reason}
        if event.outcome is not None:
            summary |= {**outcome_numbers(event.outcome), "verdict": event.outcome.sentence}
            params = event.outcome.params or {}
            summary |= {f"recommended.{name}": as_text(one) for name, one in params.items()}
        self._run.summary.update(summary)
        self._finish(is_failed=event.status in {"stopped", "failed"})

    def _finish(self, *, is_failed: bool) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            run.finish(exit_code=1 if is_failed else 0)
