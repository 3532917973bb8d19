"""Discord's HTTP API on this machine, in place of the real one.

It answers what Agno's ``DiscordTools`` asks, in the forms that Discord documents for version 10, and keeps
what it is told. Each bot token has a server of its own, which begins as ``CHANNELS`` says.
"""

import json
from typing import Any

from convergence.testing import RefusedError, SimulatedRequest, SimulatedService

GUILD = "900100200300400500"
MOST_LETTERS = 2000
"""In a message, as at Discord."""

CHANNELS = {
    "general": ("Everything and nothing", [
        ("ada", "Good morning! The office opens at nine on Friday."),
        ("grace", "Lunch is pizza today, in the big kitchen."),
        ("crypto_king", "FREE COINS for everyone who clicks here"),
        ("linus", "The car park is closed until Tuesday."),
    ]),
    "support": ("Questions of customers", [
        ("margaret", "My printer is on fire, error code E42."),
        ("alan", "The invoice of March shows 19 euros too much."),
        ("gold_seller", "Buy gold now, cheap and fast"),
        ("barbara", "I cannot log in since the update to version 7."),
    ]),
    "releases": ("What was shipped", [
        ("ken", "Version 7 was shipped on 12 May, with the new login."),
        ("dennis", "Version 6 was shipped on 3 February."),
        ("ken", "The next version needs two more weeks."),
    ]),
    "moderators": ("For moderators", [
        ("grace", "Please keep an eye on gold_seller."),
        ("ada", "The rules were changed last week: no links in general."),
    ]),
}  # fmt: skip


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


def refused(status: int, code: int, text: str) -> RefusedError:
    """Return a refusal in Discord's form."""
    return RefusedError(status, {"message": text, "code": code})


def channels(state: dict[str, Any], request: SimulatedRequest, guild: str) -> list[Any]:
    """Return the channels of the guild."""
    if guild != GUILD:
        raise refused(404, 10004, "Unknown Guild")
    return [*state["channels"].values()]


def channel(state: dict[str, Any], request: SimulatedRequest, channel_id: str) -> Any:
    """Return a channel."""
    if not channel_id.isdigit():
        raise refused(400, 50035, "Invalid Form Body")
    if channel_id not in state["channels"]:
        raise refused(404, 10003, "Unknown Channel")
    return state["channels"][channel_id]


def read(state: dict[str, Any], request: SimulatedRequest, channel_id: str) -> list[Any]:
    """Return the newest messages of a channel."""
    channel(state, request, channel_id)
    limit = request.query.get("limit", "50")
    if not limit.isdigit() or not 1 <= int(limit) <= 100:
        raise refused(400, 50035, "Invalid Form Body")
    newest: list[Any] = state["messages"][channel_id][: int(limit)]
    return newest


def post(state: dict[str, Any], request: SimulatedRequest, channel_id: str) -> dict[str, Any]:
    """Write a message into a channel and return it."""
    channel(state, request, channel_id)
    try:
        text = json.loads(request.body)["content"]
    except (ValueError, KeyError, TypeError):
        raise refused(400, 50006, "Cannot send an empty message") from None
    if not isinstance(text, str) or not text.strip():
        raise refused(400, 50006, "Cannot send an empty message")
    if len(text) > MOST_LETTERS:
        raise refused(400, 50035, "Invalid Form Body")
    state["next"] += 1
    made = message(str(state["next"]), channel_id, "helper", text, 9)
    state["messages"][channel_id].insert(0, made)
    return made


def delete(
    state: dict[str, Any], request: SimulatedRequest, channel_id: str, message_id: str
) -> None:
    """Delete a message."""
    channel(state, request, channel_id)
    kept = [one for one in state["messages"][channel_id] if one["id"] != message_id]
    if len(kept) == len(state["messages"][channel_id]):
        raise refused(404, 10008, "Unknown Message")
    state["messages"][channel_id] = kept


service = SimulatedService(
    root="/api/v10",
    first_state=first_state,
    reads={
        r"GET /guilds/(\w+)/channels": channels,
        r"GET /channels/([^/]+)": channel,
        r"GET /channels/([^/]+)/messages": read,
    },
    writes={
        r"POST /channels/([^/]+)/messages": post,
        r"DELETE /channels/([^/]+)/messages/([^/]+)": delete,
    },
    unauthorized={"message": "401: Unauthorized", "code": 0},
    not_found={"message": "404: Not Found", "code": 0},
)
