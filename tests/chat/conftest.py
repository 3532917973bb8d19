"""A configured chat with a real store and a loopback provider scripted by the test."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from convergence_core.budget.prices import PriceTable
from tasks.chat.logged_chat import LoggedChat
from tasks.inputs.environment import Environment
from tasks.secrets.redaction import Secrets
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.support.chat_servers import TEMPERATURE, echo
from tests.support.configurations import chat_api, loaded
from tests.support.http_server import LoopbackServer, Request

Result = TypeVar("Result")


class Chats:
    """Chats of one store."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.root, self._stack = root, stack
        self.feedback = stack.enter_context(FeedbackStore(root))
        self.runtime = stack.enter_context(RuntimeStore(root))
        self.answer: Callable[[Request], Any] = echo
        self.server = stack.enter_context(LoopbackServer(self._answer))

    def _answer(self, request: Request) -> Any:
        return self.answer(request)

    def run(
        self,
        use: Callable[[LoggedChat], Awaitable[Result]],
        *,
        mock_url: str | None = None,
        api: dict[str, Any] | None = None,
        prices: PriceTable | None = None,
        **sections: Any,
    ) -> Result:
        """Use a chat in a separate event loop."""
        temperature = {"temperature": {**TEMPERATURE["temperature"], "default": 0.5}}
        sections.setdefault("search_space__parameters", temperature)
        sections["storage"] = {"path": str(self.root)}
        sections["api"] = api or chat_api(self.server.url)
        made = loaded(**sections)
        environment = Environment(
            secrets=Secrets({}),
            prices=prices or PriceTable(version="2026-01-01"),
            mock_url=mock_url,
        )

        async def go() -> Result:
            async with LoggedChat(made, environment, self.feedback, self.runtime) as chat:
                return await use(chat)

        return asyncio.run(go())


@pytest.fixture
def chats(tmp_path: Path) -> Iterator[Chats]:
    with ExitStack() as stack:
        yield Chats(tmp_path / "store", stack)
