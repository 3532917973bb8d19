"""Prefect settings of our processes, made before Prefect is imported.

There are two rules: never any telemetry or external call, and a quiet console by default. The
user's environment takes precedence, except for telemetry.
"""

import os
import re
import sys

from convergence_core.errors import ConfigurationError, Problem
from tasks.http.environment import check_network_environment

NO_TELEMETRY = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}

# Batch sizes with which the server records many task runs with less CPU; the ephemeral server
# inherits them through the environment.
SERVER_PROFILE = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "100",
}


def prepare(*, quiet: bool = False) -> None:
    """Set the environment for Prefect, best before Prefect is imported.

    Args:
        quiet: Whether to log only critical messages; the caller shows progress itself.

    Raises:
        ConfigurationError: the environment names an unusable proxy or certificate.
    """
    check_network_environment()
    os.environ.update(NO_TELEMETRY)
    # For workers and servers of deployments; the CLI sets it earlier.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name, value in SERVER_PROFILE.items():
        os.environ.setdefault(name, value)
    # A cold ephemeral server can exceed Prefect's 20 seconds on a busy machine.
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    if quiet and "prefect" not in sys.modules:
        os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
        # The ephemeral server writes to our standard error, with a traceback for each interrupted
        # batch.
        os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")
        os.environ.setdefault("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")


def check_prefect_settings() -> None:
    """Import Prefect, and let it read its settings.

    Raises:
        ConfigurationError: Prefect rejects variables or a profile; names the variables.
    """
    try:
        from prefect.settings import get_current_settings  # noqa: PLC0415 - takes a second

        get_current_settings()
    except ValueError as error:  # of Pydantic, of its settings, or of a profile's TOML
        raise ConfigurationError(_refused_settings(error)) from None


def _refused_settings(error: ValueError) -> list[Problem]:
    from pydantic import ValidationError  # noqa: PLC0415 - Prefect has imported it

    reasons = {"": str(error).splitlines()[0]}
    if isinstance(error, ValidationError):
        reasons = {
            str(problem["loc"][-1]): problem["msg"]
            for problem in error.errors(include_input=False)
            if problem["loc"] and problem["type"] != "default_factory_not_called"
        }
    elif match := re.search(r'field "(\w+)"', str(error)):
        reasons = {match[1]: "it cannot be parsed"}
    names = [name for name in os.environ if name.startswith("PREFECT_")]
    return [
        Problem(
            key=next((name for name in names if name.endswith(f"_{field.upper()}")), "PREFECT_*"),
            rule=f"must be a setting that Prefect accepts: {reason}",
            fix="Correct the variable or Prefect's profile; `prefect config view` lists both.",
        )
        for field, reason in reasons.items()
    ]
