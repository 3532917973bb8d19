"""Rules of URLs, wherever one is written."""

import re
from urllib.parse import parse_qsl, urlsplit

from convergence_core.config.report import Report
from convergence_core.config.secrecy import HIDDEN, is_secret_key
from convergence_core.config.shown import shown
from convergence_core.config.source import Path


def shown_url(url: str) -> str:
    """Return a URL as a message shows it: whatever stands before an ``@`` may be a secret."""
    return HIDDEN if "@" in url else shown(url)


def check_url(path: Path, url: str, report: Report, *, secret_fix: str = "") -> None:
    """Check that a text is a URL without a secret; ``secret_fix`` says where its secret belongs."""
    fix = "Write e.g. `https://api.example.com/v1/chat`."
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        report.add(path, "must be a URL", fix, value=shown_url(url))
        return
    if parts.username is not None or parts.password is not None:
        rule = "must hold no user name or password"
        fix = secret_fix or "Use `api.auth` with `type: basic`."
        report.add(path, rule, fix, value=HIDDEN)
    elif parts.scheme not in {"http", "https"} or not host or port == 0:
        report.add(
            path, "must be a URL that begins with http:// or https://", fix, value=shown_url(url)
        )
    elif re.search(r"[\s\\<>\"]", url):
        report.add(path, "must be a URL without spaces or quotes", fix, value=shown_url(url))
    elif parts.fragment:
        report.add(path, "must be a URL without a `#` part", "Remove it.", value=shown_url(url))
    secret = [key for key, value in parse_qsl(parts.query) if value and is_secret_key(key)]
    if secret:
        rule = f"must hold no secret, but has the query parameter `{secret[0][:30]}`"
        fix = secret_fix or "Use `api.auth` with `type: api_key` and `header_name`."
        report.add(path, rule, fix)
