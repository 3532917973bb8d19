"""Listeners to the events of a run, each in a separate thread.

A listener is created, called and closed in its thread, so that one that fails, hangs or is missing
cannot harm a run: its first problem is logged in one sentence, and the run continues. Events are
redacted before a listener gets them.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import JsonValue

from convergence_core.config import Configuration
from convergence_core.config.models import TelemetryConfig
from convergence_core.errors import run_checks
from convergence_core.events import CellEvaluated, Event, RunListener
from convergence_core.records import Json
from tasks.http.environment import is_loopback
from tasks.plugins.entry_points import PluginContext, find_plugin
from tasks.secrets.process_redaction import hide
from tasks.secrets.redaction import Redactor, one_line

_LOGGER: Final = logging.getLogger(__name__)
MAX_WAITING: Final = 1_000
"""Maximum events in a listener's queue; further ones are dropped."""
LAST_S: Final = 10.0
"""Maximum seconds that a run waits at its end for all its listeners."""
_MAX_REASON: Final = 300
SECRETS: Final = ("WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
"""Environment variables with secrets of the built-in listeners."""

E = TypeVar("E", bound=Event)

Make: TypeAlias = Callable[[], RunListener]


def make_listener(name: str, options: Mapping[str, Json], base_dir: Path) -> RunListener:
    """Return a listener, not connected yet.

    Raises:
        ConfigurationError: it is not installed, cannot be loaded, or rejects its options.
    """
    key = f"telemetry.listeners.{name}"
    context = PluginContext(name=name, options=options, key=key, name_key="", base_dir=base_dir)
    if name == "mlflow":
        from tasks.telemetry.trackers import MlflowRuns  # noqa: PLC0415 - an extra's

        return MlflowRuns(context)
    if name == "wandb":
        from tasks.telemetry.trackers import WandbRuns  # noqa: PLC0415 - an extra's

        return WandbRuns(context)
    made: RunListener = find_plugin("convergence.listeners", context).make(
        context, methods=("on_event", "close")
    )
    return made


def remote_exports(telemetry: TelemetryConfig) -> tuple[str, ...]:
    """Return the keys that send data to other machines, without plugin listeners' keys."""
    options: dict[str, dict[str, JsonValue]] = {"mlflow": {}, "wandb": {}} | telemetry.listeners
    uri = str(options["mlflow"].get("tracking_uri") or os.environ.get("MLFLOW_TRACKING_URI", ""))
    is_local = {
        "mlflow": _is_local(uri) or uri.startswith((".", "/")),
        "wandb": options["wandb"].get("mode") == "offline",
    }
    exports = [
        f"telemetry.listeners.{listener}"
        for listener in telemetry.listeners
        if not is_local.get(listener, True)
    ]
    endpoint = telemetry.endpoint
    return (*([] if endpoint is None or _is_local(endpoint) else ["telemetry.endpoint"]), *exports)


def _is_local(uri: str) -> bool:
    parts = urlsplit(uri)
    return not uri or parts.scheme in ("file", "sqlite") or is_loopback(parts.hostname or "")


def local_telemetry(telemetry: TelemetryConfig) -> TelemetryConfig:
    """Return the telemetry without data to other machines."""
    keys = remote_exports(telemetry)
    listeners = {
        name: options
        for name, options in telemetry.listeners.items()
        if f"telemetry.listeners.{name}" not in keys
    }
    endpoint = None if "telemetry.endpoint" in keys else telemetry.endpoint
    return telemetry.model_copy(update={"listeners": listeners, "endpoint": endpoint})


def check_listeners(configuration: Configuration, base_dir: Path) -> None:
    """Create and close each listener of a configuration.

    Raises:
        ConfigurationError: a listener cannot be created.
    """

    def check(name: str, options: Mapping[str, Json]) -> None:
        make_listener(name, options, base_dir).close()

    listeners = configuration.telemetry.listeners
    run_checks(partial(check, name, options) for name, options in listeners.items())


def open_listeners(
    telemetry: TelemetryConfig, base_dir: Path, *, redact: Redactor
) -> "ListenerThreads":
    """Return the listeners of a run; failures to create them are logged in their threads."""
    redactor = redact.joined(Redactor(SECRETS))
    hide(redactor)
    makes = {
        name: partial(make_listener, name, options, base_dir)
        for name, options in telemetry.listeners.items()
    }
    return ListenerThreads(makes, redact=redactor)


class ListenerThreads:
    """Listeners of one run.

    Args:
        makes: Name → factory of the listener.
        redact: Function that removes secrets from a text.
    """

    def __init__(self, makes: Mapping[str, Make], *, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._threads = [_ListenerThread(name, make, redact) for name, make in makes.items()]

    def __call__(self, event: Event) -> None:
        """Pass an event to all listeners; neither raises nor blocks."""
        if isinstance(event, CellEvaluated):
            return
        try:
            redacted: Event = _redacted(event, self._redact)
        except Exception as error:  # noqa: BLE001 - a listener cannot fail a run
            _LOGGER.warning("no listener received an event: %s", type(error).__name__)
            return
        for thread in self._threads:
            thread.put(redacted)

    def beside(self, listener: Callable[[E], None] | None) -> Callable[[E], None]:
        """Return a listener that calls another one first, and then these."""

        def tell(event: E) -> None:
            if listener is not None:
                listener(event)
            self(event)

        return tell

    def close(self) -> None:
        """Wait at most ``LAST_S`` for the listeners to end; safe to call twice."""
        deadline = time.monotonic() + LAST_S
        for thread in self._threads:
            thread.end(deadline)
        for thread in self._threads:
            thread.join(deadline)


class _ListenerThread:
    """Thread of one listener, with its queue of events."""

    def __init__(self, name: str, make: Make, redact: Callable[[str], str]) -> None:
        self._name = name
        self._make = make
        self._redact = redact
        self._events: queue.Queue[Event | None] = queue.Queue(MAX_WAITING)
        self._has_warned = False
        self._is_ended = False
        self._thread = threading.Thread(target=self._work, name=f"listener-{name}", daemon=True)

    def put(self, event: Event) -> None:
        """Queue an event; a full queue drops it."""
        if self._is_ended:
            return
        if self._thread.ident is None:
            self._thread.start()
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self._tell(
                f"it hangs: {MAX_WAITING:,} events wait for it, and further ones are dropped"
            )

    def end(self, deadline: float) -> None:
        """Announce the end of the events."""
        if self._is_ended or self._thread.ident is None:
            self._is_ended = True
            return
        self._is_ended = True
        try:
            self._events.put(None, timeout=max(0.0, deadline - time.monotonic()))
        except queue.Full:
            return

    def join(self, deadline: float) -> None:
        """Wait for the thread's end."""
        if self._thread.ident is None:
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._tell(f"it did not end within {LAST_S:g} s at the end of the run")

    def _work(self) -> None:
        try:
            listener = self._make()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            self._is_ended = True
            self._tell(f"it cannot be made: {error}")
            return
        while (event := self._events.get()) is not None:
            self._safely(partial(listener.on_event, event))
        self._safely(listener.close)

    def _safely(self, call: Callable[[], object]) -> None:
        try:
            call()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            self._tell(f"{type(error).__name__}: {error}")

    def _tell(self, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            text = one_line(why, _MAX_REASON, self._redact).rstrip(".")
            _LOGGER.warning(
                "listener `%s` (telemetry.listeners): %s. The run continues without it; this warning appears once.",
                self._name,
                text,
            )


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {redact(str(key)): _redacted(item, redact) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_redacted(item, redact) for item in value])
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: _redacted(getattr(value, field.name), redact) for field in fields(value)
        }
        return replace(value, **changed)
    return value
