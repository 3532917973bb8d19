"""An asker that needs no run, and a client of a test's server."""

from typing import Any

from convergence_core.records import Reply
from tasks.calls.metric_calls import PaidCall
from tasks.http.clients import ClientSettings
from tasks.providers.chat import ChatSettings
from tasks.providers.openai_chat import OpenAIChat


class PlainAsker:
    """Makes each call once, with no journal; keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    async def __call__(self, call: PaidCall, label: str) -> tuple[Reply, int | None]:
        self.requests.append(call.request)
        return await call.send(), len(self.requests)


def plain_chat(url: str) -> OpenAIChat:
    client = ClientSettings(timeout_s=20.0)
    return OpenAIChat(url, ChatSettings(client=client, unsupported="drop"))
