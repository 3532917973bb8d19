"""Gmail's HTTP API on this machine, in place of the real one.

It answers what Agno's ``GmailTools`` asks by Google's client, in the forms that Google documents for version 1, and keeps
what it is told. Each token has a mailbox of its own, which begins as ``LETTERS`` says. It listens on 127.0.0.1 alone,
asks nobody else, sends nothing, and refuses every other path.
"""

import base64
import binascii
import copy
import email
import email.policy
import json
import re
import threading
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

MOST_TOKENS = 1000
"""Mailboxes that are kept; the oldest are forgotten."""
BEGUN_MS = 1_747_000_000_000
"""When the first letter came, in milliseconds."""

LETTERS: list[tuple[str, str, str, bool]] = [
    (
        "margaret@example.com",
        "Printer in room 12",
        "The printer shows error code E42 since Monday.",
        True,
    ),
    ("margaret@example.com", "Toner", "We need two black toners by Thursday.", False),
    ("alan@example.com", "Invoice of March", "The invoice is 19 euros too high.", True),
    ("alan@example.com", "Meeting", "The meeting moves to 14:30 on Tuesday.", False),
    ("ada@example.com", "Holiday", "I am away from 3 to 17 August.", False),
    (
        "ada@example.com",
        "Draft of the report",
        "The report has 48 pages, please read chapter five.",
        True,
    ),
    ("grace@example.com", "Lunch", "Shall we have soup in the garden at noon?", False),
    ("grace@example.com", "New key", "The key for the cellar hangs behind the door.", False),
    ("ken@example.com", "Train to Rome", "It leaves at 07:52 from platform nine.", True),
    ("barbara@example.com", "Bread", "The bakery on the corner closes in May.", False),
    ("prizes@spam.example", "You have won", "Click here for free coins.", True),
]
"""Sender, subject, text, and whether it is unread; the oldest first."""


def first_letters() -> list[dict[str, Any]]:
    """Return the letters of a mailbox in Gmail's form, the newest first, as Gmail lists them."""
    found = []
    for n, (sender, subject, text, is_unread) in enumerate(LETTERS):
        labels = ["INBOX", "UNREAD"] if is_unread else ["INBOX"]
        found.append(
            letter(
                f"18f{n:05x}",
                {"From": sender, "To": "me@example.com", "Subject": subject},
                text,
                labels,
            )
        )
    return found[::-1]


def letter(
    letter_id: str, headers: dict[str, str], text: str, labels: list[str]
) -> dict[str, Any]:
    """Return a message in Gmail's form."""
    data = base64.urlsafe_b64encode(text.encode()).decode()
    listed = [{"name": name, "value": value} for name, value in headers.items()]
    return {
        "id": letter_id, "threadId": letter_id, "labelIds": labels, "snippet": text,
        "internalDate": str(BEGUN_MS + int(letter_id[3:], 16)), "sizeEstimate": len(text),
        "payload": {
            "mimeType": "text/plain", "filename": "", "headers": [*listed, {"name": "Date", "value": "Mon, 12 May 2025"}],
            "body": {"size": len(text), "data": data},
        },
    }  # fmt: skip


def text_of(found: dict[str, Any]) -> str:
    """Return the text of a message."""
    return base64.urlsafe_b64decode(found["payload"]["body"]["data"]).decode()


def header_of(found: dict[str, Any], name: str) -> str:
    """Return a header of a message; empty: it has none."""
    return next((one["value"] for one in found["payload"]["headers"] if one["name"] == name), "")


class _RefusedError(Exception):
    """What Google answers to a request that it does not carry out."""

    def __init__(self, status: int, text: str, reason: str) -> None:
        super().__init__(text)
        self.status = status
        errors = [{"message": text, "domain": "global", "reason": reason}]
        self.body = {"error": {"code": status, "message": text, "errors": errors}}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # agents call tools at once


class GmailService:
    """The service, started with its first use; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens = count()
        self._boxes: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()
        self._ids = count(0x100)
        self.writes: list[tuple[str, str]] = []
        """Method and path of each request that changed something."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(min(length, 1_000_000))
                token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
                status, body = service.answer(self.command, self.path, token, raw)
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json; charset=UTF-8")
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
        """Where the API is, as ``https://gmail.googleapis.com`` is the real one."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def new_token(self) -> str:
        """Return a token whose mailbox is as it was in the beginning."""
        with self._lock:
            token = f"simulated-{next(self._tokens)}"
            self._boxes[token] = copy.deepcopy(first_letters())
            while len(self._boxes) > MOST_TOKENS:
                self._boxes.popitem(last=False)
            return token

    def subjects(self, token: str, label: str) -> list[str]:
        """Return the subjects of the letters with a label, the newest first."""
        with self._lock:
            return [
                header_of(one, "Subject") for one in self._boxes[token] if label in one["labelIds"]
            ]

    def answer(self, method: str, path: str, token: str, raw: bytes) -> tuple[int, Any]:
        """Return status and body for a request."""
        parts = urlsplit(path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        with self._lock:
            try:
                if token not in self._boxes:
                    raise _RefusedError(401, "Invalid Credentials", "authError")
                return 200, self._answered(method, parts.path, query, self._boxes[token], raw)
            except _RefusedError as refused:
                return refused.status, refused.body

    def _answered(
        self, method: str, place: str, query: dict[str, str], box: list[dict[str, Any]], raw: bytes
    ) -> Any:
        found = re.fullmatch(r"/gmail/v1/users/me/(messages|drafts)(?:/(\w+))?", place)
        if found is None:
            raise _RefusedError(404, "Not Found", "notFound")
        what, name = found.groups()
        if (method, what, name) == ("POST", "messages", "send"):
            return self._kept(box, raw, ["SENT"], place)
        if (method, what, name) == ("POST", "drafts", None):
            made = self._kept(box, raw, ["DRAFT"], place)
            return {"id": f"r{made['id']}", "message": made}
        if (method, what) == ("GET", "messages"):
            return _listed(box, query) if name is None else _one(box, name)
        raise _RefusedError(404, "Not Found", "notFound")

    def _kept(
        self, box: list[dict[str, Any]], raw: bytes, labels: list[str], place: str
    ) -> dict[str, Any]:
        """Put the letter of a request into the mailbox; it is sent to nobody."""
        try:
            told = json.loads(raw)
            told = told.get("message", told)
            written = email.message_from_bytes(
                base64.urlsafe_b64decode(told["raw"]), policy=email.policy.default
            )
            text = written.get_content()
        except (ValueError, KeyError, TypeError, AttributeError, LookupError, binascii.Error):
            raise _RefusedError(
                400, "Missing or unreadable raw message", "invalidArgument"
            ) from None
        if not written["to"] or "@" not in str(written["to"]):
            raise _RefusedError(400, "Recipient address required", "invalidArgument")
        headers = {name: str(written[name] or "") for name in ("From", "To", "Subject")}
        made = letter(f"18f{next(self._ids):05x}", headers, str(text), labels)
        box.insert(0, made)
        self.writes.append(("POST", place))
        return {name: made[name] for name in ("id", "threadId", "labelIds")}


def _listed(box: list[dict[str, Any]], query: dict[str, str]) -> dict[str, Any]:
    text = query.get("maxResults", "100")
    if not text.isdigit() or not 1 <= int(text) <= 500:
        raise _RefusedError(400, "Invalid maxResults", "invalidArgument")
    found = [
        one for one in box if "INBOX" in one["labelIds"] and _is_meant(one, query.get("q", ""))
    ]
    ids = [{"id": one["id"], "threadId": one["threadId"]} for one in found[: int(text)]]
    # Gmail leaves the list out where nothing is found.
    return {**({"messages": ids} if ids else {}), "resultSizeEstimate": len(found)}


def _is_meant(found: dict[str, Any], query: str) -> bool:
    """Whether a letter has all that Gmail's query says: ``from:``, ``subject:``, ``is:unread`` and words."""
    words = f"{header_of(found, 'From')} {header_of(found, 'Subject')} {text_of(found)}".lower()
    for part in query.lower().replace('"', "").split():
        operator, _, value = part.rpartition(":")
        value = value.rstrip("*")
        if operator == "from":
            holds = value in header_of(found, "From").lower()
        elif operator == "subject":
            holds = value in header_of(found, "Subject").lower()
        elif operator == "is":
            holds = value.upper() in found["labelIds"]
        else:
            holds = value in words
        if not holds:
            return False
    return True


def _one(box: list[dict[str, Any]], letter_id: str) -> dict[str, Any]:
    for one in box:
        if one["id"] == letter_id:
            return one
    raise _RefusedError(404, "Requested entity was not found.", "notFound")


_LOCK = threading.Lock()
_STARTED: list[GmailService] = []


def service() -> GmailService:
    """Return the service of this process; the first call starts it."""
    with _LOCK:
        if not _STARTED:
            _STARTED.append(GmailService())
        return _STARTED[0]
