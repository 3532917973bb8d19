"""An agent that manages subreddits."""

from typing import Any

import praw
from agno.agent import Agent
from agno.tools.reddit import RedditTools
from reddit_service import service

REAL = "https://www.reddit.com"
OAUTH = "https://oauth.reddit.com"
NAMES = ("REDDIT_CLIENT_ID", "REDDIT_CLIENT_SECRET", "REDDIT_USERNAME", "REDDIT_PASSWORD")
READING = {
    "get_user_info",
    "get_top_posts",
    "get_subreddit_info",
    "get_trending_subreddits",
    "get_subreddit_stats",
}
WRITING = {"create_post", "reply_to_post", "reply_to_comment"}
TOOLS = {"writing": WRITING, "reading": READING, "all": READING | WRITING}


def make(params: dict[str, Any], context: Any) -> Agent:
    """Return an agent with Reddit's tools: simulated unless the configuration has credentials."""
    missing = [name for name in NAMES if name not in context.secrets]
    if missing and len(missing) < len(NAMES):
        message = (
            f"`api.agent.secrets` must list all four names or none, but lacks {', '.join(missing)}"
        )
        raise ValueError(message)
    if not missing:
        client, secret, user, password = (context.secret(name) for name in NAMES)
        site, api = REAL, OAUTH
    else:
        client, secret, user, password = service.new_token(), "simulated", "helper", "simulated"
        site = api = service.url
        context.rewrite(service.url, REAL)
    reddit = praw.Reddit(
        client_id=client,
        client_secret=secret,
        username=user,
        password=password,
        user_agent="python:reddit_agent:1",
        reddit_url=site,
        oauth_url=api,
        check_for_updates=False,
        check_for_async=False,
    )
    tools = RedditTools(reddit_instance=reddit, include_tools=sorted(TOOLS[params["toolkit"]]))
    # The toolkit needs them before it writes, but does not store them if it gets a client.
    tools.username, tools.password = user, password
    return Agent(
        model=context.model(temperature=params["temperature"]),
        instructions=params["instructions"],
        tools=[tools],
    )
