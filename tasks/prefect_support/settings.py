"""Prefect's settings for our processes, made before Prefect is imported.

Two rules: no telemetry and no call to the outside, ever; and a quiet console unless asked.
Whatever the user has set in the environment wins, except telemetry.
"""

import os
import sys

NO_TELEMETRY = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}

# Batch sizes by which the server records a burst of task runs with a fraction of the CPU; they
# reach the ephemeral server too, for it inherits this process's environment.
SERVER_PROFILE = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "100",
}


def prepare(*, quiet: bool = False) -> None:
    """Set the environment for Prefect; must run before Prefect is imported to have full effect.

    Args:
        quiet: log only what needs a person; the caller shows progress itself.
    """
    os.environ.update(NO_TELEMETRY)
    # For workers and servers of deployments; the command line sets it earlier.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name, value in SERVER_PROFILE.items():
        os.environ.setdefault(name, value)
    # A cold ephemeral server can need more than Prefect's 20 seconds on a busy machine.
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    if quiet and "prefect" not in sys.modules:
        os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
        # The ephemeral server writes to our standard error, and when it is stopped amid its batches
        # it tells of each with a traceback.
        os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")
        os.environ.setdefault("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")
