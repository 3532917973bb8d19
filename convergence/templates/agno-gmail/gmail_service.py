"""Gmail's HTTP API on this machine, in place of the real one.

It answers what Agno's ``GmailTools`` asks by Google's client, in the forms that Google documents for version 1, and keeps
what it is told. Each token has a mailbox of its own, which begins as ``LETTERS`` says; nothing is sent.
"""

import base64
import email
import email.policy
import json
from typing import Any, TypeAlias

from convergence.testing import RefusedError, SimulatedRequest, SimulatedService

Mailbox: TypeAlias = list[dict[str, Any]]
BEGUN_MS = 1_747_000_000_000
"""When the first letter came, in milliseconds."""

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


def refused(status: int, text: str, reason: str) -> RefusedError:
    """Return a refusal in Google's form."""
    return RefusedError(status, body_of(status, text, reason))


def body_of(status: int, text: str, reason: str) -> dict[str, Any]:
    """Return the body of a refusal."""
    errors = [{"message": text, "domain": "global", "reason": reason}]
    return {"error": {"code": status, "message": text, "errors": errors}}


def search(box: Mailbox, request: SimulatedRequest) -> dict[str, Any]:
    """Return ids of the letters in the inbox that a query means."""
    limit = request.query.get("maxResults", "100")
    if not limit.isdigit() or not 1 <= int(limit) <= 500:
        raise refused(400, "Invalid maxResults", "invalidArgument")
    query = request.query.get("q", "")
    found = [one for one in box if "INBOX" in one["labelIds"] and is_meant(one, query)]
    ids = [{"id": one["id"], "threadId": one["threadId"]} for one in found[: int(limit)]]
    # Gmail leaves the list out where nothing is found.
    return {**({"messages": ids} if ids else {}), "resultSizeEstimate": len(found)}


def is_meant(found: dict[str, Any], query: str) -> bool:
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


def read(box: Mailbox, request: SimulatedRequest, letter_id: str) -> dict[str, Any]:
    """Return a letter."""
    for one in box:
        if one["id"] == letter_id:
            return one
    raise refused(404, "Requested entity was not found.", "notFound")


def send(box: Mailbox, request: SimulatedRequest) -> dict[str, Any]:
    """Keep a letter as sent."""
    return keep(box, request.body, "SENT")


def draft(box: Mailbox, request: SimulatedRequest) -> dict[str, Any]:
    """Keep a letter as a draft."""
    made = keep(box, request.body, "DRAFT")
    return {"id": f"r{made['id']}", "message": made}


def keep(box: Mailbox, raw: bytes, label: str) -> dict[str, Any]:
    """Put the letter of a request into the mailbox."""
    try:
        told = json.loads(raw)
        told = told.get("message", told)
        data = base64.urlsafe_b64decode(told["raw"])
        written = email.message_from_bytes(data, policy=email.policy.default)
        text = written.get_content()
    except (ValueError, LookupError, TypeError, AttributeError):
        raise refused(400, "Missing or unreadable raw message", "invalidArgument") from None
    if not written["to"] or "@" not in str(written["to"]):
        raise refused(400, "Recipient address required", "invalidArgument")
    headers = {name: str(written[name] or "") for name in ("From", "To", "Subject")}
    made = letter(f"18f{0x100 + len(box):05x}", headers, str(text), [label])
    box.insert(0, made)
    return {name: made[name] for name in ("id", "threadId", "labelIds")}


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
    unauthorized=body_of(401, "Invalid Credentials", "authError"),
    not_found=body_of(404, "Not Found", "notFound"),
)
