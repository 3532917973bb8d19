"""The example package and the one that ``init`` writes: installed, tested, and optimized."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.docs.test_documents import ROOT, blocks

README = (ROOT / "examples/sqlite_search/README.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/targets.md").read_text(encoding="utf-8")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """An environment of its own, in which everything of this one can be imported."""
    folder = tmp_path / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "outer.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
    command = folder / "bin/convergence"
    command.write_text(f"#!{folder}/bin/python\nfrom convergence.__main__ import main\nmain()\n")
    command.chmod(0o755)
    return folder


def in_scratch(script: str, folder: Path, scratch: Path) -> str:
    path = f"{scratch / 'bin'}:{os.environ['PATH']}"
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"export COLUMNS=100\n{script}"],
        cwd=folder,
        env={**environment, "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.prefect
@pytest.mark.slow
def test_the_example_package_is_installed_tested_and_optimized(scratch: Path, tmp_path: Path):
    ignored = shutil.ignore_patterns(
        "build", "*.egg-info", "__pycache__", "results", "convergence-data"
    )
    shutil.copytree(ROOT / "examples/sqlite_search", tmp_path / "package", ignore=ignored)
    (block,) = blocks(README, "sh")
    printed = in_scratch(block, tmp_path / "package", scratch)
    assert re.search(r"\d+ passed, \d skipped", printed)
    assert "(plugin: sqlite-search)" in printed
    look = (
        'convergence query --format csv "select count(*) filter (fault is null), min(provider), '
        'max(reward) from evaluations"'
    )
    n_answered, provider, best = (
        in_scratch(look, tmp_path / "package", scratch).splitlines()[1].split(",")
    )
    assert int(n_answered) > 50
    assert provider == "plugin"
    assert float(best) == 1.0


@pytest.mark.prefect
@pytest.mark.slow
def test_the_page_s_connector_is_written_installed_tested_and_optimized(
    scratch: Path, tmp_path: Path
):
    (block,) = [b for b in blocks(PAGE, "sh") if "--template connector" in b]
    printed = in_scratch(block, tmp_path, scratch)
    assert re.search(r"\d+ passed, \d skipped", printed)
    assert "(plugin: acme-search)" in printed
    best = (tmp_path / "my-connector/results/best_config.json").read_text(encoding="utf-8")
    assert '"stem"' in best
    look = 'convergence query --format csv "select count(*), sum(cost_usd), count(distinct call_key) from attempts"'
    n_calls, usd, n_keys = (
        in_scratch(look, tmp_path / "my-connector", scratch).splitlines()[1].split(",")
    )
    assert int(n_calls) == int(n_keys) <= 500
    assert float(usd) == pytest.approx(0.0001 * int(n_calls))


def test_this_environment_offers_no_plugin_itself():
    done = subprocess.run(
        [sys.executable, "-c", "from tasks.plugins.entry_points import installed_plugins as i; print(i('convergence.targets'))"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert done.stdout.strip() == "()"
