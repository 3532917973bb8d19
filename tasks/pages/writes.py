"""Changes from the pages: promote, roll back, stop a run, resume it.

Each request must repeat the name of its object, so that a single click changes nothing.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from convergence_core.errors import QueryError, RunNotFoundError
from convergence_core.ports import RunRecord
from convergence_core.result import verdict_of
from tasks.pages.source import PageSource
from tasks.run.adoption import adopt, describe_obstacle, obstacle, roll_back as bring_back
from tasks.run.run import FLOW_RUN_TAG
from tasks.store.journal.lease import holder_of
from tasks.store.journal.process_marks import is_local_process
from tasks.store.layout import JOURNAL_FILE
from tasks.store.runtime.runtime_store import RuntimeStore


def promote(
    source: PageSource,
    system: str,
    body: Mapping[str, Any],
    release: Callable[[str], object] = lambda _: None,
) -> str:
    """Make a run's recommendation the champion if its gate allows; return a sentence.

    Args:
        source: the store.
        system: name of the system.
        body: fields of the request: ``candidate_id``, and ``confirm`` with the system's name.
        release: resumes the flow run that waits for the promotion.

    Raises:
        QueryError: the request is unconfirmed, the gate does not promote it, or there is an
            obstacle.
        RunNotFoundError: no finished run of the system recommends the candidate.
    """
    check_confirmed(body, system)
    candidate = str(body.get("candidate_id") or "")
    promotion = (
        (record, result)
        for record in source.runs()
        if record.name == system and (result := source.result(record)) is not None
    )
    record, result = next(
        (
            (record, result)
            for record, result in promotion
            if result.winner is not None and candidate in ("", result.winner.candidate_id)
        ),
        (None, None),
    )
    if record is None or result is None or result.winner is None:
        raise RunNotFoundError(
            f"a finished run of {system} must recommend {candidate or 'something'}."
        )
    if result.gate is None or result.gate.decision != "promote":
        verdict = verdict_of(result)
        raise QueryError(f"The gate does not promote it. {verdict.sentence} {verdict.next_step}")
    runtime = _runtime(source)
    why = obstacle(runtime, result)
    if why is not None:
        raise QueryError(describe_obstacle(why, result))
    adopt(runtime, result, reason=f"promoted from {result.label}")
    flow_run = record.tags.get(FLOW_RUN_TAG)
    if flow_run is not None:
        release(flow_run)
    return f"{result.winner.label} is the champion of {system} now."


def roll_back(source: PageSource, system: str, body: Mapping[str, Any]) -> str:
    """Restore the previous champion in production; return a sentence on the result.

    Raises:
        ConfigurationError: there is no previous champion.
        QueryError: the request is unconfirmed.
    """
    check_confirmed(body, system)
    former = bring_back(_runtime(source), system)
    return f"{source.champion_name(former)} is the champion of {system} again."


def stop(source: PageSource, record: RunRecord, body: Mapping[str, Any]) -> str:
    """Stop a run cleanly, as SIGTERM does; return a sentence on the result.

    Raises:
        QueryError: the run is not running on this machine, or the request is unconfirmed.
    """
    check_confirmed(body, record.label)
    mark = holder_of(source.store.path / JOURNAL_FILE, record.name)
    if record.status != "running" or mark is None:
        raise QueryError(
            f"you can stop only a run that is running, but {record.label} is {record.status}."
        )
    if not is_local_process(mark):
        raise QueryError(f"{record.label} runs on {mark.host}: stop it there.")
    os.kill(mark.pid, signal.SIGTERM)
    return f"{record.label} stops after the calls in flight and keeps all paid answers."


def resume(source: PageSource, record: RunRecord, body: Mapping[str, Any]) -> str:
    """Resume a run in a new process; return a sentence on the result.

    Raises:
        QueryError: the run has not stopped early, or the request is unconfirmed.
    """
    check_confirmed(body, record.label)
    if record.status not in {"stopped", "interrupted", "failed"}:
        raise QueryError(
            f"you can resume only a run that has stopped, but {record.label} is {record.status}."
        )
    offline = ("--offline",) if "offline" in record.tags else ()
    started = subprocess.Popen(  # noqa: S603 - our own command, with the id of a run of this store
        [sys.executable, "-m", "convergence", "resume", record.run_id, *offline, "--quiet",
         "--store", str(source.store.path)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    threading.Thread(target=started.wait, name="resumed run", daemon=True).start()
    return f"{record.label} continues in a new process."


def check_confirmed(body: Mapping[str, Any], name: str) -> None:
    """Check that a request repeats the name of its object.

    Raises:
        QueryError: the name differs.
    """
    if body.get("confirm") != name:
        raise QueryError(f"`confirm` must repeat the name {name!r}.")


def _runtime(source: PageSource) -> RuntimeStore:
    return source.runtime() or RuntimeStore(source.store.path)
