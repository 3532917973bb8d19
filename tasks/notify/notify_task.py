"""The Prefect task that posts a notice; retried only where another try may succeed."""

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from convergence_core.errors import NotificationError
from tasks.notify.notifier import Form, Notice, send
from tasks.secrets.process_redaction import redacted_errors


def may_pass(_task: object, _run: TaskRun, state: State[Any]) -> bool:
    """Whether another try may succeed."""
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
        ConfigurationError: the variable is not set, or holds no address.
        NotificationError: the notice did not arrive.
    """
    send(Notice(event=event, system=system, text=text), env_name, form)
