"""A browser's requests to the server of the pages."""

from pathlib import Path
from typing import Any

import httpx

from convergence.service.tokens import TokenRegistry, read_tokens
from convergence.ui.server import UiServer

ADMIN = "an-admin-token-that-nobody-guesses-0123456789"
READER = "a-traffic-token-that-nobody-guesses-987654321"


class Viewer:
    """Browser-like client with a cookie and only headers that a script could send."""

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
        """Post a change, as the page does after requesting a token."""
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


def sections(page: Any) -> dict[str, str]:
    """Return the sections of a page of blocks as text by their titles; ``""`` is what stands before them."""
    texts: dict[str, list[str]] = {"": []}
    for block in page["blocks"]:
        if block["is"] == "Heading" and block["level"] == 2:
            texts[block["text"]] = []
        else:
            texts[[*texts][-1]].append(_text(block))
    return {title: " ".join(parts) for title, parts in texts.items()}


def _text(block: Any) -> str:
    match block:
        case {"text": text}:
            return str(text)
        case {"is": "Grid", "columns": columns, "rows": rows, "folded": folded}:
            return " ".join(
                map(_text, [folded, *columns, *(cell for row in rows for cell in row)])
            )
        case {"parts": parts}:
            return "".join(map(_text, parts))
        case {"items": items}:
            return " ".join("".join(map(_text, item)) for item in items)
        case str():
            return block
        case _:
            return ""


def column(page: Any, title: str, *, of: str) -> list[str]:
    """Return a column of a section's last table as texts."""
    blocks = page["blocks"]
    (start,) = (i for i, block in enumerate(blocks) if block.get("text") == of)
    rest = blocks[start + 1 :]
    end = next((i for i, b in enumerate(rest) if b["is"] == "Heading" and b["level"] == 2), None)
    grid = [block for block in rest[:end] if block["is"] == "Grid"][-1]
    place = grid["columns"].index(title)
    return [_text(row[place]) for row in grid["rows"]]


def actions(page: Any) -> list[Any]:
    """Return the buttons of a page of blocks."""
    parts = [part for block in page["blocks"] for part in block.get("parts", ())]
    cells = [cell for b in page["blocks"] for row in b.get("rows", ()) for cell in row]
    return [one for one in (*parts, *cells) if isinstance(one, dict) and one["is"] == "Action"]
