"""Clients of the HTTP service, blocking and awaited.

::

    with Client("http://127.0.0.1:8700", token_env="APP_TOKEN") as client:
        chosen = client.select("support_bot", user_id="u1")
        client.update("support_bot", user_id="u1", decision_id=chosen.decision_id, reward=1.0)

What may pass by itself (no connection, 429, 503) is asked again, at most ``retries`` times, as late as
the service wishes. That is harmless: each choice is asked under a name of its own, and the same reward
counts once. ``generate`` is asked again only where the service did not begin with it.
"""

from convergence.client.clients import AsyncClient, Client, ServiceRefusedError
from tasks.serving.answers import (
    Arm,
    Gates,
    GeneratedAnswer,
    RewardOutcome as Updated,
    Selection,
)
from tasks.store.runtime.rows import Decision

__all__ = [
    "Arm",
    "AsyncClient",
    "Client",
    "Decision",
    "Gates",
    "GeneratedAnswer",
    "Selection",
    "ServiceRefusedError",
    "Updated",
]
