"""The pages of the web application in Chromium: sizes and texts that a short run does not have."""

import shutil
import subprocess
from pathlib import Path

import pytest

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
def test_pages_over_planted_answers():
    run_node("planted.test.mjs")
