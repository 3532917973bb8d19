"""Discord's HTTP API on this machine, in place of the real one.

It answers what Agno's ``DiscordTools`` asks, in the forms that Discord documents for version 10, and keeps
what it is told. Each bot token has a server of its own, which begins as ``CHANNELS`` says. It listens on
127.0.0.1 alone, asks nobody else, and refuses every other path.
"""

import copy
import json
import re
import threading
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

GUILD = "900100200300400500"
MOST_TOKENS = 1000
"""Servers that are kept; the oldest are forgotten."""
MOST_LETTERS = 2000
"""In a message, as at Discord."""

CHANNELS: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "general": (
        "Everything and nothing",
        [
            ("ada", "Good morning! The office opens at nine on Friday."),
            ("grace", "Lunch is pizza today, in the big kitchen."),
            ("crypto_king", "FREE COINS for everyone who clicks here"),
            ("linus", "The car park is closed until Tuesday."),
        ],
    ),
    "support": (
        "Questions of customers",
        [
            ("margaret", "My printer is on fire, error code E42."),
            ("alan", "The invoice of March shows 19 euros too much."),
            ("gold_seller", "Buy gold now, cheap and fast"),
            ("barbara", "I cannot log in since the update to version 7."),
        ],
    ),
    "releases": (
        "What was shipped",
        [
            ("ken", "Version 7 was shipped on 12 May, with the new login."),
            ("dennis", "Version 6 was shipped on 3 February."),
            ("ken", "The next version needs two more weeks."),
        ],
    ),
    "moderators": (
        "For moderators",
        [
            ("grace", "Please keep an eye on gold_seller."),
            ("ada", "The rules were changed last week: no links in general."),
        ],
    ),
}


def first_state() -> dict[str, Any]:
    """Return channels by id, and messages by id of the channel, newest first, as Discord has them."""
    channels, messages = {}, {}
    for n, (name, (topic, said)) in enumerate(CHANNELS.items()):
        channel_id = str(910_000_000_000_000_000 + n)
        channels[channel_id] = {
            "id": channel_id, "type": 0, "guild_id": GUILD, "position": n, "name": name,
            "topic": topic, "nsfw": False, "rate_limit_per_user": 0, "parent_id": None,
        }  # fmt: skip
        found = [
            message(f"{920_000_000_000_000_000 + 1000 * n + i}", channel_id, author, text, i)
            for i, (author, text) in enumerate(said)
        ]
        messages[channel_id] = found[::-1]
    return {"channels": channels, "messages": messages, "next": 930_000_000_000_000_000}


def message(message_id: str, channel_id: str, author: str, text: str, hour: int) -> dict[str, Any]:
    """Return a message in Discord's form."""
    return {
        "id": message_id, "type": 0, "content": text, "channel_id": channel_id,
        "author": {"id": f"94{hash_of(author):016d}", "username": author, "bot": author == "helper"},
        "timestamp": f"2026-05-14T{8 + hour:02d}:00:00+00:00", "edited_timestamp": None, "tts": False,
        "mention_everyone": False, "mentions": [], "attachments": [], "embeds": [], "pinned": False,
    }  # fmt: skip


def hash_of(text: str) -> int:
    """Return a number of a text that is the same in every process."""
    return sum(ord(letter) * pow(131, i, 10**16) for i, letter in enumerate(text)) % 10**16


class RefusedError(Exception):
    """What Discord answers to a request that it does not carry out."""

    def __init__(self, status: int, code: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.body = {"message": text, "code": code}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # agents call tools at once


class DiscordService:
    """The service, started with its first use; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens = count()
        self._states: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self.writes: list[tuple[str, str]] = []
        """Method and path of each request that changed something."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(min(length, 1_000_000))
                token = (self.headers.get("Authorization") or "").removeprefix("Bot ")
                status, body = service.answer(self.command, self.path, token, raw)
                data = b"" if body is None else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Log nothing."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        """Where the API is, as ``https://discord.com/api/v10`` is the real one."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/api/v10"

    def new_token(self) -> str:
        """Return a token whose server is as it was in the beginning."""
        with self._lock:
            token = f"simulated-{next(self._tokens)}"
            self._states[token] = copy.deepcopy(first_state())
            while len(self._states) > MOST_TOKENS:
                self._states.popitem(last=False)
            return token

    def messages(self, token: str, channel: str) -> list[str]:
        """Return the texts of a channel by its name, newest first."""
        with self._lock:
            state = self._states[token]
            (found,) = [one["id"] for one in state["channels"].values() if one["name"] == channel]
            return [one["content"] for one in state["messages"][found]]

    def answer(self, method: str, path: str, token: str, raw: bytes) -> tuple[int, Any]:
        """Return status and body for a request."""
        with self._lock:
            try:
                if token not in self._states:
                    raise RefusedError(401, 0, "401: Unauthorized")
                return self._answered(method, path, self._states[token], raw)
            except RefusedError as refused:
                return refused.status, refused.body

    def _answered(
        self, method: str, path: str, state: dict[str, Any], raw: bytes
    ) -> tuple[int, Any]:
        parts = urlsplit(path)
        if method == "GET" and (
            found := re.fullmatch(r"/api/v10/guilds/(\w+)/channels", parts.path)
        ):
            if found[1] != GUILD:
                raise RefusedError(404, 10004, "Unknown Guild")
            return 200, [*state["channels"].values()]
        found = re.fullmatch(r"/api/v10/channels/([^/]+)(/messages)?(?:/([^/]+))?", parts.path)
        if found is None:
            raise RefusedError(404, 0, "404: Not Found")
        channel_id, has_messages, message_id = found.groups()
        if not channel_id.isdigit():
            raise RefusedError(400, 50035, "Invalid Form Body")
        if channel_id not in state["channels"]:
            raise RefusedError(404, 10003, "Unknown Channel")
        if method == "GET" and not has_messages:
            return 200, state["channels"][channel_id]
        if method == "GET" and message_id is None:
            return 200, self._read(state, channel_id, parts.query)
        if method == "POST" and has_messages and message_id is None:
            return 200, self._posted(state, channel_id, path, raw)
        if method == "DELETE" and message_id is not None:
            return self._deleted(state, channel_id, message_id, path)
        raise RefusedError(405, 0, "405: Method Not Allowed")

    def _read(self, state: dict[str, Any], channel_id: str, query: str) -> list[Any]:
        limit = parse_qs(query).get("limit", ["50"])[0]
        if not limit.isdigit() or not 1 <= int(limit) <= 100:
            raise RefusedError(400, 50035, "Invalid Form Body")
        found: list[Any] = state["messages"][channel_id][: int(limit)]
        return found

    def _deleted(
        self, state: dict[str, Any], channel_id: str, message_id: str, path: str
    ) -> tuple[int, None]:
        said = state["messages"][channel_id]
        if message_id not in {one["id"] for one in said}:
            raise RefusedError(404, 10008, "Unknown Message")
        said[:] = [one for one in said if one["id"] != message_id]
        self.writes.append(("DELETE", path))
        return 204, None

    def _posted(
        self, state: dict[str, Any], channel_id: str, path: str, raw: bytes
    ) -> dict[str, Any]:
        try:
            text = json.loads(raw)["content"]
        except (ValueError, KeyError, TypeError):
            raise RefusedError(400, 50006, "Cannot send an empty message") from None
        if not isinstance(text, str) or not text.strip():
            raise RefusedError(400, 50006, "Cannot send an empty message")
        if len(text) > MOST_LETTERS:
            raise RefusedError(400, 50035, "Invalid Form Body")
        state["next"] += 1
        made = message(str(state["next"]), channel_id, "helper", text, 9)
        state["messages"][channel_id].insert(0, made)
        self.writes.append(("POST", path))
        return made


_LOCK = threading.Lock()
_STARTED: list[DiscordService] = []


def service() -> DiscordService:
    """Return the service of this process; the first call starts it."""
    with _LOCK:
        if not _STARTED:
            _STARTED.append(DiscordService())
        return _STARTED[0]
