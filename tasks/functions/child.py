"""A child process of ``tasks.functions.processes``: imports one function and calls it until told to end."""

import asyncio
import functools
import pickle
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from tasks.functions.child_process import parent_pipe
from tasks.functions.function_results import result_json
from tasks.functions.user_functions import is_async, load_function
from tasks.functions.workers import WorkOutcome, measured, measured_async


def main() -> None:
    """Serve calls from the parent's pipe."""
    pipe = parent_pipe()
    settings = pipe.recv()
    sys.path[:] = settings["sys_path"]
    function = load_function(settings["path"], Path(settings["base_dir"]), key="api.function")
    loop = asyncio.new_event_loop() if is_async(function) else None
    pipe.send("ready")
    while True:
        try:
            args, keywords = pipe.recv()
        except EOFError:  # the parent has closed the pipe: all is done
            return
        call = functools.partial(function, *args, **keywords)
        if loop is None:
            outcome = measured(call, result_json)
        else:
            outcome = loop.run_until_complete(measured_async(call, result_json))
        _send(pipe, outcome)


def _send(pipe: Connection, outcome: WorkOutcome) -> None:
    failure = outcome.failure
    parts = None
    if failure is not None:
        parts = (failure.error_type, failure.message, failure.details)
    pipe.send_bytes(pickle.dumps((outcome.value, parts, outcome.latency_ms)))
