"""Notices to people: short messages to a webhook, or in Slack's form.

An address is a secret, because it permits writing there. So configurations name its environment
variable, which is read on use, and no error shows it.
"""

import os
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import httpx
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from convergence_core.errors import ConfigurationError, NotificationError
from tasks.secrets.process_redaction import hide, redacted_errors
from tasks.secrets.redaction import Redactor

Form: TypeAlias = Literal["webhook", "slack"]
"""``webhook`` is a JSON object with ``event``, ``system`` and ``text``; ``slack`` has only
``text``, as for Slack, Mattermost and Rocket.Chat.
"""
TIMEOUT_S = 20.0
_HTTP_MAY_PASS = 429
_HTTP_SERVER = 500


def send(body: Mapping[str, str], env_name: str, form: Form) -> None:
    """Post ``event``, ``system`` and ``text`` to the address in an environment variable.

    Raises:
        ConfigurationError: the variable is not set, or is not an address.
        NotificationError: the notice did not arrive; ``may_pass`` tells whether a retry may
            succeed.
    """
    url = os.environ.get(env_name, "").strip()
    hide(Redactor([env_name]))
    if not url.startswith(("https://", "http://")):
        rule = "must hold an address that begins with https://"
        rule = rule if url else "must be set where the worker runs"
        fix = f"Set it before the worker starts: `export {env_name}=https://…`."
        raise ConfigurationError.of(env_name, rule, fix)
    try:
        # The answer's body is not needed, so it is not read.
        with httpx.stream(
            "POST",
            url,
            json={"text": body["text"]} if form == "slack" else dict(body),
            timeout=TIMEOUT_S,
        ) as answer:
            status = answer.status_code
    except httpx.InvalidURL:
        raise NotificationError(
            f"{env_name}: must hold an address, but its value is not one", may_pass=False
        ) from None
    except httpx.TransportError as error:  # its text may show the address
        raise NotificationError(
            f"{env_name}: its address cannot be reached ({type(error).__name__})", may_pass=True
        ) from None
    if not httpx.codes.is_success(status):
        may_pass = status == _HTTP_MAY_PASS or status >= _HTTP_SERVER
        raise NotificationError(f"{env_name}: its address answered {status}", may_pass=may_pass)


def may_pass(_task: object, _run: TaskRun, state: State[Any]) -> bool:
    """Return whether a retry may succeed."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, NotificationError) and error.may_pass


@task(
    task_run_name="post to {env_name}",
    cache_policy=NO_CACHE,
    retries=4,
    retry_delay_seconds=[1, 5, 20, 60],
    retry_condition_fn=may_pass,
)
@redacted_errors()
def post(event: str, system: str, text: str, env_name: str, form: Form) -> None:
    """Send one notice to the address in an environment variable.

    Raises:
        ConfigurationError: the variable is not set, or is not an address.
        NotificationError: the notice did not arrive.
    """
    send({"event": event, "system": system, "text": text}, env_name, form)
