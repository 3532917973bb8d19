"""The pages of the web application in Chromium: sizes and texts that a short run does not have."""

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

import convergence
from convergence.ui.server import UiServer
from tasks.pages.source import PageSource
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.optimizations import write_project
from tests.support.page_viewer import READER, store_of, tokens
from tests.support.searching import search

UI = Path(__file__).parents[2] / "ui"
CHROMIUM = shutil.which("chromium")
NODE = shutil.which("node")


def _missing() -> str | None:
    if NODE is None:
        return "node is missing"
    if CHROMIUM is None:
        return "chromium is missing"
    if not (UI / "node_modules/playwright-core").exists():
        return "the packages of the pages' tests are missing: npm --prefix ui ci"
    return None


pytestmark = pytest.mark.skipif(_missing() is not None, reason=_missing() or "")


def run_node(script: str, *arguments: str, timeout: float = 540, **environment: str) -> str:
    """Run a script of ui/test, return what it printed; its failure is the test's."""
    assert NODE is not None
    assert CHROMIUM is not None
    found = subprocess.run(
        [NODE, *arguments, str(UI / "test" / script)],
        env={"PATH": "/usr/bin:/bin", "HOME": "/tmp", "CHROMIUM": CHROMIUM, **environment},  # noqa: S108
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-12_000:] + found.stderr[-4_000:]
    return found.stdout


def test_a_page_opens_and_loads_nothing_from_elsewhere():
    assert "opened" in run_node("smoke.mjs", timeout=60)


@pytest.mark.slow
@pytest.mark.skipif(
    (UI / "node_modules").is_symlink(), reason="names in built files depend on where packages lie"
)
def test_the_script_of_a_reports_plots_is_built_from_its_sources(tmp_path: Path):
    assert NODE is not None
    plots = tmp_path / "plots.js"
    subprocess.run([NODE, UI / "build.mjs", tmp_path / "ui", plots], check=True, timeout=120)
    assert plots.read_bytes() == (UI.parent / "tasks/report/plots.js").read_bytes()


@pytest.mark.slow
def test_pages_over_planted_answers():
    run_node("planted.test.mjs")


NASTY = (
    "<script>alert(1)</script> [a](javascript:alert(2)) \u202eevil\u202c \x1b[31m \"'` </textarea>"
)


def write_nasty(folder: Path) -> Path:
    """Write a project whose cases and answers are hostile, and one of whose answers has 5 MB."""
    path = write_project(folder, optimization__evolution={"population_size": 4, "generations": 2})
    target = folder / "target.py"
    text = target.read_text()
    answer = f'    return {{"result": str(closeness) + {NASTY!r} + "x" * (case["n"] == 0) * int(os.environ.get("LONG", "0"))}}\n'
    text = (
        text[: text.index('    return {"result": closeness')]
        + answer
        + text[text.index("\n\ndef worth") :]
    )
    text = text.replace(
        "return min(1.0, max(0.0, result))",
        'return min(1.0, max(0.0, float(result.split("<")[0])))',
    )
    target.write_text(text)
    cases = json.loads((folder / "cases.json").read_text())
    for case in cases:
        case["input"]["text"] = NASTY
    (folder / "cases.json").write_text(json.dumps(cases))
    return path


def serve_requests(store: Path) -> None:
    """Let two arms serve some requests of the system."""
    arms = [{"arm_id": name, "params": {"kind": name}} for name in ("small", "large")]
    convergence.configure_runtime_sync("known", config={"default_arms": arms}, storage=store)
    for n in range(20):
        chosen = convergence.runtime_select_sync("known", user_id=f"u{n}")
        convergence.runtime_update_sync(
            "known", user_id=f"u{n}", decision_id=chosen.decision_id, reward=float(n % 3 == 0)
        )


@pytest.mark.slow
def test_pages_over_a_real_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = write_nasty(tmp_path)
    monkeypatch.setenv("LONG", "5000000")
    run_id = search(config).run_id
    store = store_of(tmp_path)
    serve_requests(store)
    source = PageSource(ParquetStore(store))
    with UiServer(source, tokens(), port=0) as server, ThreadPoolExecutor(1) as pool:
        pages = pool.submit(
            run_node,
            "real.test.mjs",
            timeout=400,
            ADDRESS=server.address(),
            RUN=run_id,
            READER=READER,
        )
        monkeypatch.setenv("TARGET_DELAY_S", "0.3")
        monkeypatch.delenv("LONG")
        search(write_project_again(config, seed=4))
        pages.result()
    source.close()


def write_project_again(config: Path, *, seed: int) -> Path:
    """Write the configuration once more with another seed; return its path."""
    tree = yaml.safe_load(config.read_text())
    tree["optimization"]["seed"] = seed
    path = config.with_name("again.yaml")
    path.write_text(yaml.safe_dump(tree))
    return path
