"""Take the documentation's screenshots of Prefect's pages, from a real night.

    python -m docs.screenshots

Starts a loopback server and worker as ``convergence up`` does, deploys four systems, runs a night of each,
and takes screenshots in headless Chromium (`chromium` on the path). The systems are a document search, a chat
with `convergence mock` as its paid model, one with a planted thinker, and one with a planted author and judge.
The script makes no external call.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import httpx
import yaml

from tasks.mock.mock_server import MockServer
from tasks.mock.options import MockOptions
from tests.support.nightly import Night, eventually
from tests.support.planted_server import planted_server
from tests.support.preferring_runs import planted_world, write_preferring
from tests.support.thinking_server import ThinkingWorld, thinking_server
from tests.support.thoughtful_runs import truth, write_thoughtful

DOCS = Path(__file__).parent
ROOT = DOCS.parent
MAX_BYTES = 150_000
CHROMIUM = [
    "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--hide-scrollbars", "--force-device-scale-factor=1",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]  # fmt: skip
WIDTH = 1280


def photograph(url: str, path: Path, *, height: int, scratch: Path) -> None:
    """Render a page and save it as PNG."""
    subprocess.run(
        [
            *CHROMIUM,
            f"--user-data-dir={scratch / 'chromium'}",
            f"--window-size={WIDTH},{height}",
            "--virtual-time-budget=20000",
            f"--screenshot={path}",
            url,
        ],
        check=True,
        capture_output=True,
        timeout=180,
    )
    if path.stat().st_size > MAX_BYTES:
        raise SystemExit(f"{path} is larger than {MAX_BYTES:,} bytes: make it lower")


def write_search(folder: Path) -> Path:
    """Write the quick start with its original files and local results; return its path."""
    source = ROOT / "data/quickstart"
    tree: dict[str, Any] = yaml.safe_load((source / "optimization.yaml").read_text())
    tree["api"]["function"] = str(source / "retriever.py") + ":search"
    tree["evaluation"]["test_cases"]["path"] = str(source / "cases.jsonl")
    metrics = tree["evaluation"]["metrics"]
    metrics["ndcg_at_10"]["function"] = str(source / "metrics.py") + ":ndcg_at_10"
    tree["budget"] = {"max_calls": 12_000}
    return _written(folder, tree)


def write_chat(folder: Path, url: str) -> Path:
    """Write a chat with the mock as its paid model; return its path."""
    source = ROOT / "convergence/templates/openai"
    tree: dict[str, Any] = yaml.safe_load((source / "optimization.yaml").read_text())
    tree["api"]["endpoint"] = f"{url}/v1"
    tree["api"].pop("auth")
    parameters = tree["search_space"]["parameters"]
    parameters["prompt"]["variants"] = [
        str(source / "prompts" / name) for name in ("short.md", "rules.md")
    ]
    parameters["prompt"]["default"] = parameters["prompt"]["variants"][0]
    tree["evaluation"]["test_cases"]["path"] = str(source / "test_cases.json")
    tree["budget"] = {"max_usd": 0.05, "max_calls": 600}
    return _written(folder, tree)


def _written(folder: Path, tree: dict[str, Any]) -> Path:
    folder.mkdir()
    tree["storage"] = {"path": "./convergence-data"}
    tree["output"] = {"save_path": "./results"}
    path = folder / "optimization.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return path


def played(night: Night, deployment: str, scratch: Path) -> dict[str, Any]:
    """Run a deployment; return its flow run once it has finished or waits for input."""
    before = len(night.of_deployments())
    night.prefect(f"deployment run {deployment}", cwd=scratch)
    ended = {"Completed", "Suspended", "Failed", "Crashed"}
    run = eventually(
        lambda: next(
            (run for run in night.of_deployments()[before:] if run["state_name"] in ended), {}
        ),
        f"{deployment} does not end",
    )
    if run["state_name"] in {"Failed", "Crashed"}:
        raise SystemExit(f"{deployment}: {run['state']['message']}")
    return run


def artifacts_of(night: Night, prefix: str) -> dict[str, str]:
    """Return key → id of the newest artifact of each key with a prefix."""
    found = httpx.post(
        f"{night.api_url}/artifacts/filter", json={"sort": "CREATED_DESC", "limit": 200}
    ).json()
    newest = {a["key"]: a["id"] for a in reversed(found) if a["key"]}
    return {
        key.removeprefix(prefix): found_id
        for key, found_id in newest.items()
        if key.startswith(prefix)
    }


def main() -> None:
    """Run the nights and take screenshots of their pages."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        night = Night(scratch / "home", ALERTS_URL="http://127.0.0.1:9/none")
        thinker = thinking_server(
            ThinkingWorld(truth=truth, setting={"x": 0.7, "kind": "b"}, spread=0.2)
        )
        with MockServer(MockOptions()) as mock, thinker, planted_server(planted_world()) as author:
            search = write_search(scratch / "search")
            chat = write_chat(scratch / "chat", mock.url.removesuffix("/v1"))
            judged = write_preferring(scratch / "judged", author.url)
            thought = write_thoughtful(scratch / "thought", thinker.url)
            try:
                night.up(scratch)
                night.command(
                    f"convergence deploy {search} --notify-webhook ALERTS_URL\n"
                    f"convergence deploy {chat} --name mood\n"
                    f"convergence deploy {thought} --name known\n"
                    f"convergence deploy {judged} --name codes",
                    cwd=scratch,
                )
                run = played(night, "optimize/nightly --param generations=4", scratch)
                for name in ("mood", "known", "codes"):
                    played(night, f"optimize/nightly-{name}", scratch)
                photograph_all(night, run, scratch)
            finally:
                night.down()


def photograph_all(night: Night, run: dict[str, Any], scratch: Path) -> None:
    """Take screenshots of the nights' pages."""
    page = night.api_url.removesuffix("/api")
    search, chat = artifacts_of(night, "stdlib-search-"), artifacts_of(night, "mood-")
    thought, judged = artifacts_of(night, "known-"), artifacts_of(night, "codes-")
    pages = {
        "prefect-run": (f"runs/flow-run/{run['id']}", 620),
        "prefect-deployments": ("deployments", 560),
        "prefect-leaderboard": (f"artifacts/artifact/{search['leaderboard']}", 700),
        "prefect-learning-curve": (f"artifacts/artifact/{search['learning-curve']}", 640),
        "prefect-spend": (f"artifacts/artifact/{chat['spend']}", 620),
        "prefect-thoughts": (f"artifacts/artifact/{thought['thoughts']}", 620),
        "prefect-preferences": (f"artifacts/artifact/{judged['preferences']}", 430),
    }
    for name, (path, height) in pages.items():
        photograph(f"{page}/{path}", DOCS / f"pictures/{name}.png", height=height, scratch=scratch)


if __name__ == "__main__":
    main()
