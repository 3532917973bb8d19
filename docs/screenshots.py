"""Take the pictures of Prefect's pages that the documents show, from a real run.

    python -m docs.screenshots

Starts a Prefect server on loopback, runs the quick start for three generations, and photographs
its pages in headless Chromium (`chromium` on the path).
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx

from tests.support.prefect_server import PrefectServer

DOCS = Path(__file__).parent
ROOT = DOCS.parent
CONFIG = ROOT / "data/quickstart/optimization.yaml"
CHROMIUM = [
    "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--hide-scrollbars", "--force-device-scale-factor=1",
]  # fmt: skip


def photograph(url: str, path: Path, *, height: int, scratch: Path) -> None:
    """Render a page and save it as PNG."""
    subprocess.run(
        [
            *CHROMIUM,
            f"--user-data-dir={scratch / 'chromium'}",
            f"--window-size=1280,{height}",
            "--virtual-time-budget=20000",
            f"--screenshot={path}",
            url,
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )


def main() -> None:
    """Run the quick start and photograph it."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        with PrefectServer(scratch) as server:
            subprocess.run(
                [
                    sys.executable, "-m", "convergence", "optimize", str(CONFIG),
                    "--generations", "3", "--output", str(scratch / "results"),
                ],
                check=True,
                env={**os.environ, **server.environment},
                cwd=scratch,
            )  # fmt: skip
            api, page = server.api_url, server.api_url.removesuffix("/api")
            runs = httpx.post(f"{api}/flow_runs/filter", json={"sort": "START_TIME_ASC"}).json()
            run = next(r for r in runs if r["parent_task_run_id"] is None)
            artifacts = httpx.post(f"{api}/artifacts/filter", json={"sort": "CREATED_DESC"}).json()
            newest = {a["key"]: a["id"] for a in reversed(artifacts)}
            pictures = {
                "prefect-run.png": (f"{page}/runs/flow-run/{run['id']}", 740),
                "prefect-learning-curve.png": (
                    f"{page}/artifacts/artifact/{newest['stdlib-search-learning-curve']}",
                    760,
                ),
                "prefect-leaderboard.png": (
                    f"{page}/artifacts/artifact/{newest['stdlib-search-leaderboard']}",
                    760,
                ),
            }
            for name, (url, height) in pictures.items():
                photograph(url, DOCS / "pictures" / name, height=height, scratch=scratch)


if __name__ == "__main__":
    main()
