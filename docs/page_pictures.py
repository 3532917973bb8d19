"""Take the documentation's screenshots of the web application, from a real chat run.

    python -m docs.page_pictures

The chat's model is `convergence mock`, so the run has prompts and costs. Headless Chromium renders the pages, as in
their tests (`npm --prefix ui ci` first). The script makes no external call.
"""

import subprocess
import tempfile
from pathlib import Path

import httpx
from PIL import Image

from convergence.ui.server import UiServer
from docs.screenshots import DOCS, MAX_BYTES, ROOT, write_chat
from tasks.mock.mock_server import MockServer
from tasks.mock.options import MockOptions
from tasks.pages.source import PageSource
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.searching import search

PICTURES = {
    "run-1440-light": "ui-run",
    "answers-1440-dark": "ui-answers",
    "cell-390-light": "ui-cell",
}
"""File from ui/test/pictures.mjs → picture in the documentation."""


def save_picture(taken: Path, name: str) -> None:
    """Save a screenshot as a documentation picture with few colours."""
    path = DOCS / "pictures" / f"{name}.png"
    with Image.open(taken) as full:
        full.convert("RGB").quantize(200).save(path, optimize=True)
    if path.stat().st_size > MAX_BYTES:
        raise SystemExit(f"{path} is larger than {MAX_BYTES:,} bytes: make it lower")


def main() -> None:
    """Search, serve and take screenshots."""
    with tempfile.TemporaryDirectory() as folder, MockServer(MockOptions()) as mock:
        scratch = Path(folder)
        result = search(write_chat(scratch / "chat", mock.url.removesuffix("/v1")))
        source = PageSource(ParquetStore(scratch / "chat/convergence-data"))
        with UiServer(source, None, port=0) as server:
            with httpx.Client(base_url=server.url, follow_redirects=True) as client:
                client.get(server.address())
                page = client.get(f"/ui/api/runs/{result.run_id}/answers").json()
            row = next(n for n, cells in enumerate(page["cells"]) if cells[0] and cells[1])
            case = page["cases"][row]["case_id"]
            candidate, other = (one["candidate_id"] for one in page["candidates"][:2])
            subprocess.run(
                [
                    "node", ROOT / "ui/test/pictures.mjs", scratch / "pictures",
                    "run,answers,cell", server.address(), result.run_id,
                    f"answers?case={case}&candidate={candidate}&against={other},"
                    f"compare?a={candidate}&b={other}", "window",
                ],
                check=True,
                timeout=300,
            )  # fmt: skip
        source.close()
        for name, picture in PICTURES.items():
            save_picture(scratch / "pictures" / f"{name}.png", picture)


if __name__ == "__main__":
    main()
