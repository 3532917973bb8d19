"""Loopback service with a chat and its pages, and a provider scripted by the test."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from convergence.service.auth import allowed_hosts
from convergence.service.server import Service, ServiceOptions
from convergence.service.tokens import read_tokens
from convergence.ui.app import ServedChat
from convergence.ui.guard import UiGuard
from convergence.ui.server import guarded
from convergence.ui.sessions import BrowserSessions
from convergence_core.budget.prices import PriceTable
from tasks.chat.logged_chat import LoggedChat
from tasks.inputs.environment import Environment
from tasks.pages.source import PageSource
from tasks.secrets.redaction import Secrets
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.chat_servers import TEMPERATURE, echo
from tests.support.configurations import chat_api, loaded
from tests.support.http_server import Answer, LoopbackServer, Request

TALKER = "a-token-of-the-chat-that-nobody-guesses-012345"
READER = "a-token-of-traffic-that-nobody-guesses-9876543"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPages:
    """What a test asks."""

    url: str
    sessions: BrowserSessions
    feedback: FeedbackStore

    def address(self) -> str:
        """Return an address that opens the pages in one browser, once."""
        return f"{self.url}/ui/?token={self.sessions.one_time_token()}"


@contextmanager
def served_chat(root: Path) -> Iterator[ServedPages]:
    """Serve a chat that echoes its input and holds messages with "wait" until it closes."""
    ended = threading.Event()
    number = itertools.count(
        1
    )  # no two answers are equal: no preference is kept between equal ones

    def answer(request: Request) -> Answer:
        if "wait" in request.body["messages"][-1]["content"]:
            ended.wait(60)
        request.body["messages"][-1]["content"] += f" ({next(number)})"
        return echo(request)

    with ExitStack() as stack:
        store = stack.enter_context(RuntimeStore(root))
        feedback = stack.enter_context(FeedbackStore(root))
        provider = stack.enter_context(LoopbackServer(answer))
        stack.callback(ended.set)
        temperature = {"temperature": {**TEMPERATURE["temperature"], "default": 0.5}}
        made = loaded(
            api=chat_api(provider.url), search_space__parameters=temperature,
            feedback={"roles": {"pirate": "Arr."}},
        )  # fmt: skip
        environment = Environment(secrets=Secrets({}), prices=PriceTable(version="2026-01-01"))
        chat = LoggedChat(made, environment, feedback, store)
        tokens = read_tokens(
            ["TALKER=chat,update", "READER=select"], {"TALKER": TALKER, "READER": READER}
        )
        source, sessions = PageSource(ParquetStore(root)), BrowserSessions()
        stack.callback(source.close)

        def pages(host: str, port: int) -> UiGuard:
            return guarded(
                source, sessions, tokens, hosts=allowed_hosts(host, port), port=port,
                ends=lambda: service.is_ending,
                chat=ServedChat(roles=chat.role_names, user="ada", note="It only echoes."),
            )  # fmt: skip

        service = Service(store, tokens, ServiceOptions(port=0), pages, chat)
        url = stack.enter_context(service).url
        yield ServedPages(url=url, sessions=sessions, feedback=feedback)
