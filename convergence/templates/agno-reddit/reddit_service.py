"""Reddit's HTTP API on this machine, in place of the real one.

It answers what Agno's ``RedditTools`` asks by PRAW, in the forms that Reddit documents, and keeps what it is told. Each
client has a Reddit of its own, which begins as ``SUBREDDITS`` says. It listens on 127.0.0.1 alone, asks nobody
else, and refuses every other path.
"""

import base64
import binascii
import copy
import json
import re
import threading
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

MOST_TOKENS = 1000
"""Clients that are kept; the oldest are forgotten."""
MOST_LETTERS = 40_000
"""In a text, as at Reddit."""
BEGUN = 1_747_000_000
"""When it all was written, in seconds."""

SUBREDDITS: dict[str, tuple[str, int, list[tuple[str, str, str, int]]]] = {
    "printers": (
        "Everything that prints",
        48_213,
        [
            ("margaret", "My printer is on fire", "It shows error code E42 and smokes.", 311),
            (
                "alan",
                "Which toner for the office",
                "We print 900 pages a week, in black alone.",
                120,
            ),
            ("gold_seller", "Buy gold now", "Cheap and fast, click here.", 2),
        ],
    ),
    "gardening": (
        "Plants, soil and patience",
        150_902,
        [
            (
                "ada",
                "First tomatoes of the year",
                "They were sown on 3 March, by the window.",
                845,
            ),
            (
                "linus",
                "Snails ate my salad",
                "Copper tape around the beds kept the rest safe.",
                402,
            ),
            ("crypto_king", "Free coins", "For everyone who clicks here.", 1),
        ],
    ),
    "baking": (
        "Bread and cake",
        87_455,
        [
            (
                "grace",
                "Sourdough that rose at last",
                "The trick was 28 degrees and two days.",
                990,
            ),
            ("barbara", "Flat bread again", "My yeast was from 2019.", 77),
        ],
    ),
    "trains": (
        "Railways of all kinds",
        23_518,
        [
            ("ken", "The night train is back", "It leaves at 22:14 and has beds.", 512),
            ("dennis", "A bridge from above", "Built in 1911, and still in use.", 230),
        ],
    ),
}
USERS = {
    "margaret": (312, 1045), "alan": (88, 960), "ada": (2711, 5120), "linus": (430, 77),
    "grace": (1906, 3300), "barbara": (59, 12), "ken": (804, 1501), "dennis": (266, 940),
    "gold_seller": (-41, 3), "crypto_king": (-97, 1), "helper": (10, 10),
}  # fmt: skip
"""User → karma of comments, and of posts."""


def first_state() -> dict[str, Any]:
    """Return subreddits by name, and posts and comments by their ids."""
    posts, n = {}, 0
    for name, (_, _, written) in SUBREDDITS.items():
        for one in written:
            posts[f"p{n:03d}"] = post(f"p{n:03d}", name, one)
            n += 1
    comments = {
        "k000": comment("k000", posts["p000"], "t3_p000", "alan", "Is it a laser printer?")
    }
    return {"posts": posts, "comments": comments, "next": 0}


def post(post_id: str, name: str, written: tuple[str, str, str, int]) -> dict[str, Any]:
    """Return a post in Reddit's form; of what was written: author, title, text and score."""
    author, title, text, score = written
    link = f"/r/{name}/comments/{post_id}/"
    return {
        "id": post_id, "name": f"t3_{post_id}", "title": title, "selftext": text, "score": score,
        "author": author, "subreddit": name, "subreddit_name_prefixed": f"r/{name}", "is_self": True,
        "permalink": link, "url": f"https://www.reddit.com{link}", "created_utc": BEGUN + score,
        "link_flair_text": None, "num_comments": 0, "over_18": False,
    }  # fmt: skip


def comment(
    comment_id: str, of: dict[str, Any], parent: str, author: str, text: str
) -> dict[str, Any]:
    """Return a comment in Reddit's form."""
    return {
        "id": comment_id, "name": f"t1_{comment_id}", "body": text, "score": 1, "author": author,
        "subreddit": of["subreddit"], "link_id": of["name"], "parent_id": parent,
        "permalink": f"{of['permalink']}{comment_id}/", "created_utc": BEGUN, "replies": "",
    }  # fmt: skip


def subreddit(name: str) -> dict[str, Any]:
    """Return a subreddit in Reddit's form."""
    title, subscribers, _ = SUBREDDITS[name]
    return {
        "id": f"2q{sorted(SUBREDDITS).index(name)}", "name": f"t5_{name}", "display_name": name, "title": title,
        "description": f"{title}. Be kind, and write in whole sentences.", "public_description": title,
        "subscribers": subscribers, "active_user_count": subscribers // 100, "created_utc": BEGUN,
        "over18": False, "url": f"/r/{name}/",
    }  # fmt: skip


def listing(kind: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return things as a page of Reddit's."""
    children = [{"kind": kind, "data": one} for one in found]
    return {
        "kind": "Listing",
        "data": {"children": children, "after": None, "before": None, "dist": len(found)},
    }


class _RefusedError(Exception):
    """What Reddit answers to a request that it does not carry out."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.body = {"message": text, "error": status}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # agents call tools at once


class RedditService:
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
                given = self.headers.get("Authorization") or ""
                status, body = service.answer(self.command, self.path, given, raw)
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                if self.close_connection:  # PRAW asks for it with each token
                    self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Log nothing."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        """Where both the site and its API are."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def new_token(self) -> str:
        """Return a client's id whose Reddit is as it was in the beginning; its token is the same text."""
        with self._lock:
            token = f"simulated-{next(self._tokens)}"
            self._states[token] = copy.deepcopy(first_state())
            while len(self._states) > MOST_TOKENS:
                self._states.popitem(last=False)
            return token

    def texts(self, token: str) -> list[str]:
        """Return titles of posts and texts of comments of a client's Reddit, the oldest first."""
        with self._lock:
            state = self._states[token]
            titles = [one["title"] for one in state["posts"].values()]
            return titles + [one["body"] for one in state["comments"].values()]

    def answer(self, method: str, path: str, given: str, raw: bytes) -> tuple[int, Any]:
        """Return status and body for a request; ``given``: its authorization."""
        parts = urlsplit(path)
        form = {key: values[0] for key, values in parse_qs(raw.decode("utf-8", "replace")).items()}
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        with self._lock:
            try:
                if (method, parts.path) == ("POST", "/api/v1/access_token"):
                    return 200, self._token(given)
                scheme, _, token = given.partition(" ")
                if scheme.lower() != "bearer" or token not in self._states:
                    raise _RefusedError(401, "Unauthorized")
                state = self._states[token]
                place = parts.path.rstrip("/")
                found = self._read(place, query, state) if method == "GET" else None
                if found is None and method == "POST":
                    found = self._written(place, form, state)
                if found is None:
                    raise _RefusedError(404, "Not Found")
                return 200, found
            except _RefusedError as refused:
                return refused.status, refused.body

    def _token(self, given: str) -> dict[str, Any]:
        try:
            client = (
                base64.b64decode(given.removeprefix("Basic "), validate=True)
                .decode()
                .partition(":")[0]
            )
        except (binascii.Error, UnicodeDecodeError):
            client = ""
        if client not in self._states:
            raise _RefusedError(401, "Unauthorized")
        return {"access_token": client, "token_type": "bearer", "expires_in": 86_400, "scope": "*"}

    def _read(self, place: str, query: dict[str, str], state: dict[str, Any]) -> Any:
        """Return what a path holds; ``None``: it is none of Reddit's that is simulated."""
        if place == "/api/v1/me":
            return {**self._user("helper"), "features": {}}
        if place == "/subreddits/popular":
            popular = sorted(SUBREDDITS, key=lambda name: -SUBREDDITS[name][1])
            return listing("t5", [subreddit(name) for name in popular][: limit_of(query, 25)])
        if found := re.fullmatch(r"/user/([\w-]+)/about", place):
            return {"kind": "t2", "data": self._user(found[1])}
        if found := re.fullmatch(r"/r/(\w+)/(about|top|api/link_flair_v2)", place):
            return self._of_subreddit(found[1].lower(), found[2], query, state)
        return self._of_thread(place, query, state)

    def _of_thread(self, place: str, query: dict[str, str], state: dict[str, Any]) -> Any:
        comments = state["comments"]
        if found := re.fullmatch(r"/comments/(\w+)", place):
            one = self._post(found[1], state)
            own = [that for that in comments.values() if that["link_id"] == one["name"]]
            return [listing("t3", [one]), listing("t1", own)]
        if place == "/api/info":
            wanted = [name.removeprefix("t1_") for name in query.get("id", "").split(",")]
            return listing("t1", [comments[one] for one in wanted if one in comments])
        return None

    def _of_subreddit(
        self, name: str, what: str, query: dict[str, str], state: dict[str, Any]
    ) -> Any:
        if name not in SUBREDDITS:
            raise _RefusedError(404, "Not Found")
        if what == "about":
            return {"kind": "t5", "data": subreddit(name)}
        if what == "api/link_flair_v2":
            return []
        own = [one for one in state["posts"].values() if one["subreddit"] == name]
        return listing("t3", sorted(own, key=lambda one: -one["score"])[: limit_of(query, 25)])

    def _user(self, name: str) -> dict[str, Any]:
        if name not in USERS:
            raise _RefusedError(404, "Not Found")
        of_comments, of_posts = USERS[name]
        return {
            "id": f"u{sorted(USERS).index(name)}", "name": name, "comment_karma": of_comments, "link_karma": of_posts,
            "is_mod": False, "is_gold": False, "is_employee": False, "created_utc": BEGUN,
        }  # fmt: skip

    def _post(self, post_id: str, state: dict[str, Any]) -> dict[str, Any]:
        if post_id not in state["posts"]:
            raise _RefusedError(404, "Not Found")
        found: dict[str, Any] = state["posts"][post_id]
        return found

    def _written(self, place: str, form: dict[str, str], state: dict[str, Any]) -> Any:
        """Return what was made of a form; ``None``: the path takes none."""
        if place == "/api/submit":
            return self._submitted(form, state)
        if place == "/api/comment":
            return self._commented(form, state)
        return None

    def _submitted(self, form: dict[str, str], state: dict[str, Any]) -> dict[str, Any]:
        name, title = form.get("sr", "").lower(), form.get("title", "")
        if name not in SUBREDDITS:
            return errors("SUBREDDIT_NOEXIST", "that subreddit doesn't exist", "sr")
        if not title.strip() or len(title) > 300:
            return errors(
                "NO_TEXT" if not title.strip() else "TOO_LONG", "we need something here", "title"
            )
        text = form.get("text", "")
        if len(text) > MOST_LETTERS:
            return errors("TOO_LONG", "this is too long", "text")
        state["next"] += 1
        made = post(f"q{state['next']:03d}", name, ("helper", title, text, 1))
        state["posts"][made["id"]] = made
        self.writes.append(("POST", "/api/submit"))
        return {
            "json": {
                "errors": [],
                "data": {"url": made["url"], "id": made["id"], "name": made["name"]},
            }
        }

    def _commented(self, form: dict[str, str], state: dict[str, Any]) -> dict[str, Any]:
        parent, text = form.get("thing_id", ""), form.get("text", "")
        kind, _, thing = parent.partition("_")
        if not text.strip() or len(text) > MOST_LETTERS:
            return errors(
                "NO_TEXT" if not text.strip() else "TOO_LONG", "we need something here", "text"
            )
        if kind == "t1" and thing in state["comments"]:
            of = self._post(state["comments"][thing]["link_id"].removeprefix("t3_"), state)
        elif kind == "t3":
            of = self._post(thing, state)
        else:
            raise _RefusedError(404, "Not Found")
        state["next"] += 1
        made = comment(f"m{state['next']:03d}", of, parent, "helper", text)
        state["comments"][made["id"]] = made
        self.writes.append(("POST", "/api/comment"))
        return {"json": {"errors": [], "data": {"things": [{"kind": "t1", "data": made}]}}}


def limit_of(query: dict[str, str], default: int) -> int:
    """Return how many things are wanted, as Reddit takes it: 100 at most."""
    text = query.get("limit", "")
    return min(100, int(text)) if text.isdigit() and int(text) else default


def errors(code: str, text: str, field: str) -> dict[str, Any]:
    """Return what Reddit answers, with status 200, to a form that it does not take."""
    return {"json": {"errors": [[code, text, field]]}}


_LOCK = threading.Lock()
_STARTED: list[RedditService] = []


def service() -> RedditService:
    """Return the service of this process; the first call starts it."""
    with _LOCK:
        if not _STARTED:
            _STARTED.append(RedditService())
        return _STARTED[0]
