"""Redaction of all that this process writes: logs, warnings, tracebacks, errors.

A run's ``Redactor`` covers stored texts, but not the loggers, warnings and uncaught errors of
other libraries. So once a secret is known, one redactor of the whole process filters the last step
of each:

* ``logging.Handler.format``, which every handler calls for its text, including Prefect's handlers
  and those created later;
* ``warnings.formatwarning``, and the hooks for uncaught errors in any thread;
* ``redacted_errors`` around flows and tasks, because Prefect stores an error's text as a state.

A secret stays known until the process ends: a run's last lines appear after the run is closed.
"""

import logging
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from convergence_core.errors import ConvergenceError
from convergence_core.records import Json, canonical_json
from tasks.secrets.redaction import Redactor, redact_json

_MAX_DEPTH = 20
"""Maximum depth of chained errors, and of containers in their arguments."""
_SLOTS = ("filename", "filename2", "strerror", "object", "reason")
"""Attributes of built-in errors that hold texts besides their arguments."""

_lock = threading.Lock()
_redact = Redactor()
_is_installed = False


def hide(redactor: Redactor) -> None:
    """Remove a redactor's secrets from all later output of this process. Thread-safe."""
    global _redact, _is_installed  # noqa: PLW0603 - the process also has one standard error
    with _lock:
        _redact = _redact.joined(redactor)
        if not _is_installed:
            _is_installed = True
            _install()


def redacted_text(text: str) -> str:
    """Return a text without any secret that this process knows."""
    return _redact(text)


def without_known_secrets(text: str) -> str:
    """Return a text without this process's known secrets; mere look-alikes stay."""
    return _redact.without_values(text)


def without_known_keys(text: str) -> str:
    """Return a text without this process's known secrets, except those that consist of words."""
    return _redact.of_no_words.without_values(text)


def stored_json(value: Json) -> str:
    """Return an external value as redacted JSON for storage."""
    return canonical_json(redact_json(value, redacted_text))


@contextmanager
def redacted_errors() -> Iterator[None]:
    """Redact an error that leaves this context; also works as a decorator.

    Raises:
        ConvergenceError: replaces an error with unchangeable text, and names its type. All other
            errors keep their identity.
    """
    try:
        yield
    except Exception as error:
        chain: list[BaseException] = []
        _mend(error, chain)
        if all(_is_clean(link) for link in chain):
            raise
        # Not chained to the old error, whose text would appear as the cause.
        words = redacted_text(f"{type(error).__name__}: {error}")
        raise ConvergenceError(words) from None


def _is_clean(error: BaseException) -> bool:
    shown = (str(error), repr(error))
    return all(redacted_text(text) == text for text in shown)


def _mend(error: BaseException | None, chain: list[BaseException]) -> None:
    """Redact the texts of an error and its causes, and append each to ``chain``."""
    if error is None or any(error is link for link in chain) or len(chain) > _MAX_DEPTH:
        return
    chain.append(error)
    # An error that forbids assignment fails the check for secrets later.
    with suppress(AttributeError, TypeError):
        args = _mended(error.args)
        if args is not error.args:
            error.args = args
        for name in (*vars(error), *_SLOTS):
            value = getattr(error, name, None)
            mended = _mended(value)
            if mended is not value:
                setattr(error, name, mended)
    _mend(error.__cause__, chain)
    _mend(error.__context__, chain)
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            _mend(inner, chain)


def _mended(value: Any, depth: int = 0) -> Any:
    """Return a value with its texts redacted; the same object if nothing changed."""
    mended: Any = value
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, str):
        mended = redacted_text(value)
    elif isinstance(value, bytes):
        text = value.decode("latin-1")
        mended = redacted_text(text).encode("latin-1")
    elif type(value) in (list, tuple, set, frozenset):
        mended = type(value)(_mended(item, depth + 1) for item in value)
    elif type(value) is dict:
        mended = {_mended(key): _mended(item, depth + 1) for key, item in value.items()}
    return value if mended == value else mended


def _install() -> None:
    """Redact the output of each last step, and change nothing before it."""
    plain_format = logging.Handler.format
    plain_warning = warnings.formatwarning

    def format_record(handler: logging.Handler, record: logging.LogRecord) -> str:
        text: Any = plain_format(handler, record)
        # Formatters of other libraries may return something other than a string.
        return redacted_text(text) if isinstance(text, str) else text

    def format_warning(*args: Any, **named: Any) -> str:
        return redacted_text(plain_warning(*args, **named))

    logging.Handler.format = format_record  # type: ignore[method-assign, assignment]  # the one step all share
    warnings.formatwarning = format_warning
    sys.excepthook = _guarded(sys.excepthook, _uncaught)
    threading.excepthook = _guarded(threading.excepthook, _uncaught_in_thread)
    sys.unraisablehook = _guarded(sys.unraisablehook, _unraisable)


def _guarded(hook: Callable[..., Any], text_of: Callable[..., str]) -> Callable[..., Any]:
    """Return a hook that calls the previous hook unless its text would reveal a secret."""

    def guarded(*args: Any) -> Any:
        text = text_of(*args)
        clean = redacted_text(text)
        if clean == text:
            return hook(*args)
        stream: TextIO | None = sys.stderr
        if stream is not None:  # a process without a console has none
            stream.write(clean)
        return None

    return guarded


def _uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> str:
    return "".join(traceback.format_exception(kind, error, trace))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> str:
    name = "unknown" if args.thread is None else args.thread.name
    trace = traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback)
    return f"Exception in thread {name}:\n{''.join(trace)}"


def _unraisable(args: "sys.UnraisableHookArgs") -> str:
    trace = traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback)
    return f"{args.err_msg or 'Exception ignored in'}: {args.object!r}\n{''.join(trace)}"
