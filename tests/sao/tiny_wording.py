"""The tiny language model's own words for a question, and an asker that needs no run."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tasks.calls.metric_calls import PaidCall
from tasks.http.clients import ClientSettings
from tasks.mock.mock_server import MockServer
from tasks.mock.tiny_model import BINS
from tasks.providers.chat import ChatSettings
from tasks.providers.openai_chat import OpenAIChat
from tasks.rlp.model_calls import Answered, Model

T = TypeVar("T")


class TinyWords:
    """The wording of ``tasks.mock.tiny_model``."""

    options = BINS

    def probes(self) -> tuple[str, str]:
        begin = "<bos> hist ant t3 -> b7 think best"
        return f"{begin} bee near t4 end cfg bee t5 ->", f"{begin} ant near t2 end cfg ant t9 ->"


class PlainAsker:
    """Makes each call once, with no journal; counts them."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.requests: list[Any] = []

    async def ask(self, call: PaidCall, label: str) -> Answered:
        self.labels.append(label)
        self.requests.append(call.request)
        return Answered(reply=await call.send(), ended_us=len(self.labels))


def tiny_chat(url: str, *, timeout_s: float = 20.0) -> OpenAIChat:
    client = ClientSettings(timeout_s=timeout_s)
    return OpenAIChat(f"{url}/v1", ChatSettings(client=client, unsupported="drop"))


def with_model(server: MockServer, work: Callable[[Model], Awaitable[T]]) -> T:
    """Run some work against a server, with the real client."""

    async def go() -> T:
        llm = tiny_chat(server.url)
        try:
            return await work(
                Model(llm=llm, name="tiny", wording_version="tiny-1", timeout_s=20.0)
            )
        finally:
            await llm.aclose()

    return asyncio.run(go())
