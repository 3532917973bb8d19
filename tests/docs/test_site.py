"""The documentation as a site: every page is found, no link is broken, nothing comes from elsewhere."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from docs import website

ROOT = Path(__file__).parents[2]
needs_zensical = pytest.mark.skipif(
    importlib.util.find_spec("zensical") is None,
    reason="zensical is missing: pip install -c constraints.txt -e '.[docs]'",
)


def leaves(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [leaf for part in parts for leaf in leaves(part)]


def navigation() -> list[str]:
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    return leaves(settings["project"]["nav"])


def test_every_page_is_in_the_navigation_once():
    listed = navigation()
    assert len(listed) == len(set(listed))
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages - set(listed) == set(), "add them to `nav` in zensical.toml"


def test_the_navigation_names_no_page_that_is_missing():
    made = {f"reference/python/{name}.md" for name in [*website.API, "README"]}
    written = {page.as_posix() for page in website.pages()}
    assert set(navigation()) - written == made


@pytest.mark.parametrize("word", website.LINKED_WORDS)
def test_linked_words_are_in_the_glossary(word: str):
    assert website.anchor_of(word)


def test_only_the_first_use_of_a_word_in_running_text_is_linked():
    page = Path("docs/x.md")
    text = "# A candidate\n\n`candidate`, [candidate](a.md)\n\n| candidate |\n\nA candidate, a candidate."
    linked = website._linked_words(page, text)
    assert linked.endswith("A [candidate](glossary.md#candidate), a candidate.")
    assert linked.count("glossary.md") == 1


def test_the_reference_shows_every_public_function():
    import convergence

    shown = {name.rsplit(".", 1)[1] for page in website.API.values() for name in page.objects}
    twins = {name.removesuffix("_sync") for name in convergence.__all__}
    assert twins - shown == {"__version__"}


@pytest.fixture(scope="module")
def built() -> Path:
    website.build()
    return website.SITE


@needs_zensical
@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(built: Path):
    loaded = re.compile(r"<(?:script|img|iframe|source)[^>]*\bsrc=\"(https?:|//)|"
                        r"<link[^>]*rel=\"(?:stylesheet|preconnect|preload|icon)\"[^>]*href=\"(?:https?:|//)|"
                        r"(?:url\(|@import )[\"']?(?:https?:|//)")  # fmt: skip
    read = [*built.rglob("*.html"), *built.rglob("*.css")]
    assert len(read) > 80
    for path in read:
        found = loaded.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path.relative_to(built)}: {found}"


@needs_zensical
@pytest.mark.slow
def test_search_knows_pages_docstrings_and_source(built: Path):
    index = json.loads((built / "search.json").read_text(encoding="utf-8"))
    places = {item["location"].split("#")[0] for item in index["items"]}
    assert {"index.html", "docs/money.html", "reference/python/runtime.html"} <= places


@needs_zensical
@pytest.mark.slow
def test_signatures_of_twins_are_shown(built: Path):
    page = (built / "reference/python/runtime.html").read_text(encoding="utf-8")
    text = re.sub(r"<[^>]+>", "", page)
    assert "user_id" in text
    assert "Choose an arm for a request" in text


@needs_zensical
@pytest.mark.slow
@pytest.mark.parametrize("broken", ["[gone](docs/gone.md)", "[gone](docs/money.md#gone)"])
def test_a_broken_link_or_anchor_ends_the_build(broken: str, monkeypatch: pytest.MonkeyPatch):
    import subprocess

    assemble = website.assemble

    def with_a_broken_link() -> None:
        assemble()
        page = website.PAGES / "README.md"
        page.write_text(f"{page.read_text(encoding='utf-8')}\n{broken}\n", encoding="utf-8")

    monkeypatch.setattr(website, "assemble", with_a_broken_link)
    with pytest.raises(subprocess.CalledProcessError):
        website.build()
