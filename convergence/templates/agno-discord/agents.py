"""An agent that moderates a Discord server."""

import os
from typing import Any

from agno.agent import Agent
from agno.tools.discord import DiscordTools
from discord_service import GUILD, service

REAL = "https://discord.com/api/v10"
TOOLS = {
    "messages": {"get_channel_messages", "send_message", "delete_message"},
    "reading": {"list_channels", "get_channel_info", "get_channel_messages"},
    "all": {"list_channels", "get_channel_info", "get_channel_messages", "send_message", "delete_message"},
}  # fmt: skip


def make(params: dict[str, Any], context: Any) -> Agent:
    """Return an agent with Discord's tools: simulated unless the configuration has a token."""
    token = context.secret("DISCORD_BOT_TOKEN") if "DISCORD_BOT_TOKEN" in context.secrets else None
    tools = DiscordTools(
        bot_token=token or service.new_token(),
        **{f"enable_{name}": name in TOOLS[params["toolkit"]] for name in TOOLS["all"]},
    )
    guild = os.environ.get("DISCORD_GUILD", GUILD)
    if not token:
        tools.base_url = service.url
        context.rewrite(service.url, REAL)
    return Agent(
        model=context.model(temperature=params["temperature"]),
        instructions=f"{params['instructions']} You look after the guild {guild}.",
        tools=[tools],
    )
