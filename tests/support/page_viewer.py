"""Requests to a server of the pages, as a browser makes them."""

from pathlib import Path
from typing import Any

import httpx

from convergence.service.tokens import TokenRegistry, read_tokens
from convergence.ui.server import UiServer

ADMIN = "an-admin-token-that-nobody-guesses-0123456789"
READER = "a-traffic-token-that-nobody-guesses-987654321"


class Viewer:
    """A browser's requests to a server: a cookie, and nothing that a script could not send."""

    def __init__(self, server: UiServer) -> None:
        self.server = server
        self.client = httpx.Client(base_url=server.url, timeout=60)

    def enter(self) -> "Viewer":
        """Open the printed address."""
        assert self.client.get(self.server.address(), follow_redirects=False).status_code == 303
        return self

    def close(self) -> None:
        self.client.close()

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self.client.get(f"/ui/api/{path}", params=query)

    def page(self, path: str, **query: Any) -> Any:
        """Return a page's data."""
        answer = self.get(path, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, token: str | None = ADMIN, **body: Any) -> httpx.Response:
        """Change something, as the page does after it asked for a token."""
        headers = {"X-Convergence-CSRF": self.page("session")["csrf"] or ""}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return self.client.post(f"/ui/api/{path}", json=body, headers=headers)


def tokens() -> TokenRegistry:
    return read_tokens(["ADMIN=admin", "READER=select"], {"ADMIN": ADMIN, "READER": READER})


def store_of(folder: Path) -> Path:
    """Return the store of a project."""
    (found,) = (path.parent for path in folder.rglob("store.json"))
    return found
