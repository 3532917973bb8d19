"""Notification of people, started by an automation when a system changes."""

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
    """Send a text to webhooks; parameters hold names of variables only, never an address.

    Args:
        text: what happened, for people.
        event: its name, e.g. `convergence.drift`.
        system: whom it happened to.
        webhook_env: environment variable of the worker with the address of a webhook, which gets
            `event`, `system` and `text` as JSON.
        slack_env: the same of a webhook that takes Slack's form.
    """
    with redacted_errors():
        if webhook_env is not None:
            post(event, system, text, webhook_env, "webhook")
        if slack_env is not None:
            post(event, system, text, slack_env, "slack")
