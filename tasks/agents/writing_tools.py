"""Tools that write: which they are, and what an agent is told instead."""

import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import shortened

_VERBS: Final = frozenset(
    """
    accept add apply approve archive assign ban book buy cancel close comment commit create
    deactivate delete deploy disable dislike draft drop edit enable execute follow forward import
    insert invite kick like mark merge modify move mute order patch pay pin post publish purge push
    put react register reject remove rename reopen replace reply report reset restore revoke run save
    schedule send set share spam star start stop submit subscribe tag tip transfer trash tweet unarchive
    unfollow unlabel unmark unmute unpin unshare unstar unsubscribe untrash update upload upsert upvote
    vote withdraw write
    """.split()  # noqa: SIM905 - as a literal it would be forty lines
)
"""First words of the names of tools that write."""

TOOLKIT_READS: Final[Mapping[str, frozenset[str]]] = {
    "DiscordTools": frozenset({"get_channel_messages", "get_channel_info", "list_channels"}),
    "GmailTools": frozenset(
        """
        get_latest_emails get_emails_from_user get_unread_emails get_starred_emails get_emails_by_context
        get_emails_by_date get_emails_by_thread search_emails list_custom_labels get_message get_thread
        search_threads get_draft list_drafts list_labels
        """.split()  # noqa: SIM905 - as a literal it would be fifteen lines
    ),
    "RedditTools": frozenset(
        """
        get_user_info get_top_posts get_subreddit_info get_trending_subreddits get_subreddit_stats
        """.split()  # noqa: SIM905 - as above
    ),
}
"""Class of a toolkit → its tools that only read; each other one of it writes, also one that a later
version adds."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def writes(name: str, *, toolkit: str | None, more: Sequence[str] = ()) -> bool:
    """Whether a tool may change something outside.

    Args:
        name: of the tool.
        toolkit: class of the toolkit that it belongs to; ``None``: a function of the user's.
        more: names of further tools that write, ``*`` for any letters.
    """
    if any(fnmatchcase(name, pattern) for pattern in more):
        return True
    reads = TOOLKIT_READS.get(toolkit or "")
    if reads is not None:
        return name not in reads
    return any(word.lower() in _VERBS for word in _WORD.findall(name)[:2])


def told_instead(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the result of a call that is not carried out."""
    return json.dumps(
        {
            "dry_run": True,
            "message": f"{name} was not carried out: writing is switched off. Nothing was changed.",
            "arguments": {
                key: shortened(str(value), 500, redacted_text) for key, value in arguments.items()
            },
        },
        ensure_ascii=False,
    )
