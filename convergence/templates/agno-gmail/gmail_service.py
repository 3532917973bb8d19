"""Simulation of Gmail's HTTP API on this machine.

It answers the requests that Agno's ``GmailTools`` sends with Google's client, in the forms that
Google documents for version 1, and keeps what they change. Each token has its own mailbox, which
starts with ``LETTERS``; nothing leaves this machine.
"""

import base64
import email
import email.policy
from typing import Any, TypeAlias

from convergence.testing import RefusedError, SimulatedRequest, SimulatedService

Mailbox: TypeAlias = list[dict[str, Any]]
BEGUN_MS = 1_747_000_000_000
"""Arrival of the first email, in milliseconds."""

LETTERS = [
    ("margaret@example.com", "Printer in room 12", "The printer shows error code E42 since Monday.", True),
    ("margaret@example.com", "Toner", "We need two black toners by Thursday.", False),
    ("alan@example.com", "Invoice of March", "The invoice is 19 euros too high.", True),
    ("alan@example.com", "Meeting", "The meeting moves to 14:30 on Tuesday.", False),
    ("ada@example.com", "Holiday", "I am away from 3 to 17 August.", False),
    ("ada@example.com", "Draft of the report", "The report has 48 pages, please read chapter five.", True),
    ("grace@example.com", "Lunch", "Shall we have soup in the garden at noon?", False),
    ("grace@example.com", "New key", "The key for the cellar hangs behind the door.", False),
    ("ken@example.com", "Train to Rome", "It leaves at 07:52 from platform nine.", True),
    ("barbara@example.com", "Bread", "The bakery on the corner closes in May.", False),
    ("prizes@spam.example", "You have won", "Click here for free coins.", True),
]  # fmt: skip
"""Sender, subject, text, and whether it is unread; oldest first."""


def first_letters() -> Mailbox:
    """Return the emails of a mailbox in Gmail's form, latest first, as Gmail lists them."""
    box: Mailbox = []
    for sender, subject, text, is_unread in LETTERS:
        labels = ["INBOX", "UNREAD"] if is_unread else ["INBOX"]
        add(box, {"From": sender, "To": "me@example.com", "Subject": subject}, text, labels)
    return box


def add(box: Mailbox, headers: dict[str, str], text: str, labels: list[str]) -> dict[str, Any]:
    """Put an email in Gmail's form into a mailbox; return its ids and labels."""
    ids = {"id": f"18f{len(box):05x}", "threadId": f"18f{len(box):05x}", "labelIds": labels}
    data = base64.urlsafe_b64encode(text.encode()).decode()
    dated = {**headers, "Date": "Mon, 12 May 2025"}
    box.insert(0, {
        **ids, "snippet": text, "internalDate": str(BEGUN_MS + len(box)), "sizeEstimate": len(text),
        "payload": {
            "mimeType": "text/plain", "filename": "",
            "headers": [{"name": name, "value": value} for name, value in dated.items()],
            "body": {"size": len(text), "data": data},
        },
    })  # fmt: skip
    return ids


def search(box: Mailbox, request: SimulatedRequest) -> dict[str, Any]:
    """Return ids of the emails in the inbox that match a query."""
    parts = request.query.get("q", "").lower().replace('"', "").split()
    found = [
        {name: letter[name] for name in ("id", "threadId")}
        for letter in box
        if "INBOX" in letter["labelIds"] and all(is_meant(letter, part) for part in parts)
    ]
    try:
        limit = request.limit("maxResults", 100, 500)
    except ValueError:
        raise malformed("Invalid maxResults") from None
    # Gmail omits the list if nothing matches.
    messages = {"messages": found[:limit]} if found else {}
    return {**messages, "resultSizeEstimate": len(found)}


def is_meant(letter: dict[str, Any], part: str) -> bool:
    """Return whether an email matches a query's ``from:``, ``subject:``, ``is:unread`` or word."""
    operator, _, value = part.rpartition(":")
    if operator == "is":
        return value.upper() in letter["labelIds"]
    texts = {header["name"].lower(): header["value"] for header in letter["payload"]["headers"]}
    whole = f"{texts['from']} {texts['subject']} {letter['snippet']}"
    return value.rstrip("*") in texts.get(operator, whole).lower()


def read(box: Mailbox, request: SimulatedRequest, letter_id: str) -> dict[str, Any]:
    """Return an email."""
    return {letter["id"]: letter for letter in box}[letter_id]


def send(box: Mailbox, request: SimulatedRequest) -> dict[str, Any]:
    """Store an email as sent."""
    return keep(box, request.fields, "SENT")


def draft(box: Mailbox, request: SimulatedRequest) -> dict[str, Any]:
    """Store an email as a draft."""
    made = keep(box, request.fields.get("message"), "DRAFT")
    return {"id": f"r{made['id']}", "message": made}


def keep(box: Mailbox, fields: Any, label: str) -> dict[str, Any]:
    """Put the email of a request into the mailbox; it must be one text without parts."""
    try:
        data = base64.urlsafe_b64decode(fields["raw"])
        written = email.message_from_bytes(data, policy=email.policy.default)
        headers = {name: str(written[name] or "") for name in ("From", "To", "Subject")}
        text = str(written.get_content())
    except (AttributeError, LookupError, TypeError, ValueError):
        raise malformed("Missing or unreadable raw message") from None
    if "@" not in headers["To"]:
        raise malformed("Recipient address required")
    return add(box, headers, text, [label])


def malformed(text: str) -> RefusedError:
    """Return the refusal of a malformed request."""
    return RefusedError(400, refusal(400, text, "invalidArgument"))


def refusal(status: int, text: str, reason: str) -> dict[str, Any]:
    """Return a refusal in Google's form."""
    errors = [{"message": text, "domain": "global", "reason": reason}]
    return {"error": {"code": status, "message": text, "errors": errors}}


service = SimulatedService(
    first_state=first_letters,
    reads={
        "GET /gmail/v1/users/me/messages": search,
        r"GET /gmail/v1/users/me/messages/(\w+)": read,
    },
    writes={
        "POST /gmail/v1/users/me/messages/send": send,
        "POST /gmail/v1/users/me/drafts": draft,
    },
    unauthorized=refusal(401, "Invalid Credentials", "authError"),
    not_found=refusal(404, "Requested entity was not found.", "notFound"),
    malformed=refusal(400, "Missing or unreadable message", "invalidArgument"),
)
