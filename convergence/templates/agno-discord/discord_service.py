"""Simulation of Discord's HTTP API on this machine.

It answers the requests of Agno's ``DiscordTools`` in the forms that Discord documents for version
10, and keeps what they change. Each bot token has its own server, which starts with ``CHANNELS``.
"""

from typing import Any

from convergence.testing import SimulatedRequest, SimulatedService

GUILD = "900100200300400500"
MOST_LETTERS = 2000
"""Maximum characters of a message, as at Discord."""

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
    """Return channels by id, and messages by channel id and message id, oldest first."""
    state: dict[str, Any] = {"channels": {}, "messages": {}, "n_posted": 0}
    for n, (name, (topic, texts)) in enumerate(CHANNELS.items()):
        channel_id = str(910_000_000_000_000_000 + n)
        state["channels"][channel_id] = {
            "id": channel_id, "type": 0, "guild_id": GUILD, "position": n, "name": name,
            "topic": topic, "nsfw": False, "rate_limit_per_user": 0, "parent_id": None,
        }  # fmt: skip
        state["messages"][channel_id] = {}
        for i, (author, text) in enumerate(texts):
            add(state, channel_id, 920_000_000_000_000_000 + 1000 * n + i, author, text, hour=i)
    return state


def add(
    state: dict[str, Any], channel_id: str, number: int, author: str, text: str, *, hour: int
) -> dict[str, Any]:
    """Add a message in Discord's form to a channel, and return it."""
    made = {
        "id": str(number), "type": 0, "content": text, "channel_id": channel_id,
        "author": {"id": author.encode().hex(), "username": author, "bot": author == "helper"},
        "timestamp": f"2026-05-14T{8 + hour:02d}:00:00+00:00", "edited_timestamp": None, "tts": False,
        "mention_everyone": False, "mentions": [], "attachments": [], "embeds": [], "pinned": False,
    }  # fmt: skip
    state["messages"][channel_id][made["id"]] = made
    return made


def read(state: dict[str, Any], request: SimulatedRequest, channel_id: str) -> list[Any]:
    """Return the latest messages of a channel, latest first."""
    newest = [*state["messages"][channel_id].values()][::-1]
    return newest[: request.limit("limit", 50, 100)]


def post(state: dict[str, Any], request: SimulatedRequest, channel_id: str) -> dict[str, Any]:
    """Write a message into a channel and return it."""
    text = str(request.fields.get("content", ""))
    if not text.strip() or len(text) > MOST_LETTERS:
        raise ValueError(text)
    state["n_posted"] += 1
    number = 930_000_000_000_000_000 + state["n_posted"]
    return add(state, channel_id, number, "helper", text, hour=9)


def delete(
    state: dict[str, Any], request: SimulatedRequest, channel_id: str, message_id: str
) -> None:
    """Delete a message."""
    del state["messages"][channel_id][message_id]


service = SimulatedService(
    root="/api/v10",
    first_state=first_state,
    reads={
        f"GET /guilds/{GUILD}/channels": lambda state, _: [*state["channels"].values()],
        r"GET /channels/(\d+)": lambda state, _, channel_id: state["channels"][channel_id],
        r"GET /channels/(\d+)/messages": read,
    },
    writes={
        r"POST /channels/(\d+)/messages": post,
        r"DELETE /channels/(\d+)/messages/(\d+)": delete,
    },
    unauthorized={"message": "401: Unauthorized", "code": 0},
    not_found={"message": "404: Not Found", "code": 0},
    malformed={"message": "Invalid Form Body", "code": 50035},
)
