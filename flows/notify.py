"""Notification of users, started by an automation when a system changes."""

from prefect import flow

from tasks.notify.notifier import post
from tasks.secrets.process_redaction import redacted_errors


@flow(name="notify", flow_run_name="notify {event}")
def notify(
    text: str,
    event: str,
    system: str,
    webhook_env: str | None = None,
    slack_env: str | None = None,
) -> None:
    """Send a message to webhooks; parameters hold names of variables, never an address.

    Args:
        text: message for users.
        event: name of the event, e.g. `convergence.drift`.
        system: name of the system.
        webhook_env: environment variable of the worker with the address of a webhook, which
            receives `event`, `system` and `text` as JSON.
        slack_env: environment variable of the worker with the address of a Slack webhook.
    """
    with redacted_errors():
        if webhook_env is not None:
            post(event, system, text, webhook_env, "webhook")
        if slack_env is not None:
            post(event, system, text, slack_env, "slack")
