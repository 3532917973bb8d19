"""The template of a script in browser sessions: its shop, what it says where something is missing, what a search finds."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.templates import best_of, found_of, is_planted
from convergence.templates import plan_files
from tasks.targets.local_browser import chromium_path
from tests.support.commands import Runner

SEED = 1
"""Proposes the planted configuration among its four."""


def test_the_cases_expect_what_the_shop_sells(tmp_path: Path):
    files = plan_files("browserbase")
    (tmp_path / "shop.py").write_text(files["shop.py"], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("shop_under_test", tmp_path / "shop.py")
    assert spec is not None
    assert spec.loader is not None
    shop: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = shop
    try:
        spec.loader.exec_module(shop)
    finally:
        del sys.modules[spec.name]
    cases = json.loads(files["test_cases.json"])
    sold = {name: product.price or "none" for name, product in shop.PRODUCTS.items()}
    assert {case["id"]: case["expected"] for case in cases} == sold
    for case in cases:
        assert case["input"]["url"] == f"http://127.0.0.1:{shop.PORT}/{case['id']}"
        page = shop.page_of(case["id"], shop.PRODUCTS[case["id"]], "1")
        assert case["expected"] in page.replace('textContent = ""', "none")


def test_without_playwright_the_command_that_installs_it_is_said(
    here: Path, cli: Runner, monkeypatch: pytest.MonkeyPatch
):
    steps = cli("init", ".", "--template", "browserbase").out.split("Next:")[1]
    order = [steps.index(step) for step in ("[browserbase]'", "chromium", "shop.py", "--offline")]
    assert order == sorted(order)
    monkeypatch.setitem(sys.modules, "playwright", None)  # the script's own import fails
    monkeypatch.setattr("tasks.targets.browser.find_spec", lambda _: None)
    done = cli("validate")
    assert done.code == 2
    assert "needs Playwright, which drives the browser" in done.err
    assert "Run: pip install" in done.err
    assert "scrape.py" not in done.err


@pytest.mark.slow
@pytest.mark.skipif(chromium_path() is None, reason="chromium is missing")
def test_a_small_search_finds_the_configuration_that_reads_every_page(tmp_path: Path):
    pytest.importorskip("playwright")
    result = found_of(
        "browserbase",
        SEED,
        tmp_path,
        "search_space.parameters.block_ads={type: categorical, choices: [true], default: true}",
        "search_space.parameters.dismiss={type: categorical, choices: [all], default: all}",
        "search_space.parameters.patience_ms.min=1200",
        "search_space.parameters.patience_ms.default=1500",
        "optimization.execution.parallel_workers=4",
        "optimization.evolution={population_size: 4, generations: 1}",
    )
    assert result["n_calls"] == 80
    assert is_planted("browserbase", best_of(result))
