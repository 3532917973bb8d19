"""Screenshots of Chat, Training and Review, from a tiny model that learns capitals.

    python -m docs.learning_pictures

Plays `tests.support.capitals_world`, serves its folder with `convergence serve --chat`, asks and marks over HTTP, and
takes screenshots in headless Chromium (`npm --prefix ui ci` first). It needs the extra `local` and makes no external
call.
"""

import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from docs.page_pictures import save_picture
from docs.screenshots import ROOT
from tests.support import capitals_world

USER = "synthetic-rater"
CONVERSATION = "capitals"
PICTURES = {
    "training-1440-light": "ui-training",
    "chat-1440-light": "ui-chat",
    "review-1440-dark": "ui-review",
}
"""File from ui/test/pictures.mjs → picture in the documentation."""


@contextmanager
def served(folder: Path, token: str) -> Iterator[tuple[str, str]]:
    """Serve a folder's chat and pages; yield the service's address and the pages' one-time address."""
    command = [sys.executable, "-m", "convergence", "serve", "--chat", "--port", "0"]
    command += ["--token", "PICTURE_TOKEN=chat,update"]
    environment = {**os.environ, "PICTURE_TOKEN": token}
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        found: list[str] = []
        while "?token=" not in (found[-1] if found else ""):
            found += re.findall(r"http://\S+", line := server.stdout.readline())
            assert line, "the service ended"
        try:
            yield found[0], found[-1]
        finally:
            server.terminate()


def talk(url: str, token: str) -> None:
    """Ask for capitals in one conversation and mark the answers."""
    messages: list[dict[str, str]] = []
    bearer = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=bearer, timeout=120) as client:
        for question in capitals_world.questions()[:48:16]:
            messages.append({"role": "user", "content": question.text})
            body = {
                "model": capitals_world.ROLE, "messages": messages[-1:], "user": USER,
                "metadata": {"conversation_id": CONVERSATION},
            }  # fmt: skip
            answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
            text = answer["choices"][0]["message"]["content"]
            mark = {"user_id": USER, "rating": round(capitals_world.deserved(question, text))}
            client.post(f"/v1/interactions/{answer['id']}/rating", json=mark).raise_for_status()


def main() -> None:
    """Play, serve, ask and take screenshots."""
    token = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "demo"
        for title, _ in capitals_world.play(folder):
            print(title, flush=True)
        with served(folder, token) as (url, address):
            talk(url, token)
            pages = f"training,review,chat=chat?conversation={CONVERSATION}&user={USER}"
            subprocess.run(
                [
                    "node", ROOT / "ui/test/pictures.mjs", Path(scratch) / "pictures", pages,
                    address, "none", "none,none", "window",
                ],
                check=True,
                timeout=300,
                env={**os.environ, "CHAT_TOKEN": token},
            )  # fmt: skip
        for name, picture in PICTURES.items():
            save_picture(Path(scratch) / "pictures" / f"{name}.png", picture)


if __name__ == "__main__":
    main()
