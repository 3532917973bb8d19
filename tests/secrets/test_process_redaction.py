"""What a process writes by itself, and what other libraries say, shows no secret."""

import copy
import io
import json
import logging
import logging.handlers
import pickle
import queue
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from convergence_core.errors import ConvergenceError
from tasks.secrets import process_redaction
from tasks.secrets.process_redaction import hide, redacted_errors
from tasks.secrets.redaction import MASK, Redactor, Secret, Secrets

VALUE = "kanarie-0123456789/+x"
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _hidden(monkeypatch: pytest.MonkeyPatch):
    """Hide the value for one test only."""
    monkeypatch.setattr(process_redaction, "_redact", Redactor())
    hide(Redactor(values=[VALUE]))


def test_an_opened_secret_is_the_only_way_to_see_it():
    secret = Secrets({"KEY": VALUE}).get("KEY", key="k")
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r:>40}"]
    assert not [text for text in shown if VALUE in text]
    assert secret.get_secret_value() == VALUE
    assert copy.deepcopy(secret) == secret
    with pytest.raises(TypeError):
        json.dumps(secret)


@pytest.mark.parametrize(
    "holder", [Secret(VALUE), Secrets({"KEY": VALUE}), Redactor(values=[VALUE])]
)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_holds_secrets_is_not_pickled(holder, protocol):
    with pytest.raises(TypeError, match="is not pickled"):
        pickle.dumps(holder, protocol)
    assert VALUE not in repr(holder)


def test_a_handler_made_later_in_another_thread_shows_no_secret():
    stream = io.StringIO()

    def work() -> None:
        logger = logging.getLogger("a.library.of.others")
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter("%(message)s %(extra)s"))
        logger.addHandler(handler)
        try:
            try:
                raise KeyError(VALUE)
            except KeyError:
                logger.exception("%s", {"key": VALUE}, extra={"extra": VALUE}, stack_info=True)
        finally:
            logger.removeHandler(handler)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert stream.getvalue().startswith(f"{{'key': '{MASK}'}} {MASK}")
    assert VALUE not in stream.getvalue()


def test_a_queue_of_log_records_carries_no_secret():
    records: queue.Queue[logging.LogRecord] = queue.Queue()
    handler = logging.handlers.QueueHandler(records)
    try:
        raise ValueError(VALUE)
    except ValueError:
        record = logging.LogRecord("n", 40, "f", 1, "odd %s", (VALUE,), sys.exc_info())
    handler.handle(record)
    assert VALUE not in repr(vars(records.get()))


def test_a_warning_shows_no_secret():
    assert VALUE not in warnings.formatwarning(f"odd {VALUE}", UserWarning, "f.py", 1, VALUE)


def raised(error: BaseException) -> BaseException:
    kind = ConvergenceError if isinstance(error, Stubborn) else type(error)
    with pytest.raises(kind) as caught, redacted_errors():
        raise error
    return caught.value


class Stubborn(Exception):  # noqa: N818 - a test's own
    """Its text is not made of its arguments."""

    def __str__(self) -> str:
        return "I say " + "".join(["kanarie-", "0123456789/+x"])


@pytest.mark.parametrize(
    "error",
    [
        ValueError(f"bad {VALUE}"),
        KeyError(VALUE),
        OSError(2, "no file", f"folder/{VALUE}"),
        UnicodeEncodeError("ascii", VALUE, 1, 2, "no"),
        ExceptionGroup("all", [ValueError(VALUE)]),
        RuntimeError({"deep": [VALUE, (VALUE.encode(),)]}),
        Stubborn(),
    ],
)
def test_an_error_that_leaves_a_task_holds_no_secret(error):
    error.add_note(f"note {VALUE}")
    error.__cause__ = ValueError(f"cause {VALUE}")
    found = raised(error)
    assert VALUE not in f"{found} {found!r} {getattr(found, '__notes__', '')}"
    if not isinstance(error, Stubborn):
        assert found is error
        assert VALUE not in str(found.__cause__)
        assert VALUE.encode() not in pickle.dumps(found)
    else:
        assert str(found) == f"Stubborn: I say {MASK}"


@pytest.mark.parametrize(
    "code",
    [
        "raise ValueError(f'odd {KEY}') from KeyError(KEY)",
        "t = threading.Thread(target=lambda: int(KEY)); t.start(); t.join()",
        "warnings.warn(KEY)",
        "logging.error('%r', KEY.encode())",
        "class A:\n    def __del__(self): raise ValueError(KEY)\nA()",
    ],
)
def test_what_nobody_caught_shows_no_secret(code: str):
    setup = (
        "import logging, threading, warnings\n"
        "from tasks.secrets.process_redaction import hide\nfrom tasks.secrets.redaction import Redactor\n"
        f"KEY = {VALUE!r}\nhide(Redactor(values=[KEY]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", setup + code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert VALUE not in done.stdout + done.stderr
    assert MASK in done.stderr, done.stderr


@pytest.mark.prefect
def test_the_states_and_logs_of_failed_flows_and_tasks_hold_no_secret():
    from prefect import flow, get_client, task
    from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
    from prefect.logging import get_run_logger
    from prefect.logging.handlers import APILogHandler

    @task
    @redacted_errors()
    def fails_inside() -> None:
        get_run_logger().error("using %s", VALUE)
        raise ValueError(f"bad {VALUE}")

    @flow
    def fails() -> None:
        with redacted_errors():
            fails_inside()

    state = fails(return_state=True)
    assert state.state_details.flow_run_id is not None
    APILogHandler().flush()
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(state.state_details.flow_run_id)
        told = client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run.id])))
    assert run.state is not None
    assert MASK in (run.state.message or "")
    texts = [run.state.model_dump_json(), *(log.message for log in told), repr(state.data)]
    assert not [text for text in texts if VALUE in text]
