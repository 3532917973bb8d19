"""Documentation site: the repository's pages, the Python reference and an offline search.

    python -m docs.website          # build/site/index.html
    python -m docs.website --serve  # and serve it on loopback

Pages keep their paths, so links are the same in the repository and on the site. The build adds
three things: the reference of the public Python interface, from docstrings; a page for each file
that a page links to; and a glossary link at a page's first use of a glossary word. A broken link
stops the build. Navigation and theme: ``zensical.toml``.
"""

import argparse
import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import convergence

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build/site-pages"
SITE = ROOT / "build/site"

SOURCES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "docs/decisions/*.md",
    "examples/README.md",
    "benchmarks/README.md",
    "benchmarks/*/README.md",
    "data/*/README.md",
)
ASSETS = ("docs/pictures/*", "docs/theme/*")

SHIM = "https://unpkg.com/iframe-worker/shim"
"""URL from which the theme loads search on ``file:`` pages; we ship a local copy."""

LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".sh": "sh"}

LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPage:
    """One page of the Python reference."""

    title: str
    introduction: str
    objects: tuple[str, ...] = ()
    """Functions and classes, in display order."""
    modules: tuple[str, ...] = ()
    """Modules whose public names are all shown."""


API = {
    "optimize": ApiPage(
        title="Optimize",
        introduction="Start a run and read what it found. A walk through it: "
        "[From Python](../../docs/python.md).",
        objects=(
            "convergence.api.run_optimization",
            "convergence.api.run_optimization_sync",
            "convergence.api.RunOptions",
            "convergence.api.load_result",
            "convergence.types.OptimizationResult",
            "convergence.notebooks.NotebookView",
            "convergence.types.Evaluator",
            "convergence.types.ConvergenceConfig",
            "convergence.types.ApiConfig",
            "convergence.types.SearchSpaceConfig",
            "convergence.types.EvaluationConfig",
            "convergence.types.RunnerConfig",
            "convergence.types.StorageConfig",
        ),
    ),
    "runtime": ApiPage(
        title="Choose at run time",
        introduction="An arm for each request, its reward, and the evidence. Each function has a twin "
        "that ends in `_sync` and waits. A walk through it: [the guide](../../docs/runtime.md).",
        objects=tuple(
            f"convergence.runtime.functions.{name}"
            for name in convergence.__all__
            if "runtime" in name and not name.endswith("_sync")
        ),
    ),
    "rlp": ApiPage(
        title="RLP",
        introduction="Thoughts, rewarded by what they predict. A walk through it: "
        "[Thoughts](../../docs/thoughts.md).",
        objects=(
            "convergence.plugins.learning.rlp.RLPMixin",
            "convergence.plugins.learning.rlp.RLPConfig",
            "convergence.plugins.learning.rlp.InformationGain",
            "convergence.plugins.learning.rlp.PendingGain",
        ),
    ),
    "sao": ApiPage(
        title="SAO",
        introduction="Preferences between answers, with an audit of the judge. A walk through it: "
        "[Preferences](../../docs/preferences.md).",
        objects=(
            "convergence.plugins.learning.sao.SAOMixin",
            "convergence.plugins.learning.sao.SAOConfig",
        ),
    ),
    "events": ApiPage(
        title="Events",
        introduction="What `on_event` is told during a run.",
        modules=("convergence_core.events",),
    ),
    "errors": ApiPage(
        title="Errors",
        introduction="One tree; a message names the rule, the value and the fix.",
        modules=("convergence_core.errors",),
    ),
}


def pages() -> list[Path]:
    """Return every written or generated page, relative to the repository."""
    return sorted({path.relative_to(ROOT) for glob in SOURCES for path in ROOT.glob(glob)})


def assemble() -> None:
    """Write the site's pages to ``build/site-pages``."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for glob in ASSETS:
        for asset in ROOT.glob(glob):
            if asset.is_file():
                _write(asset.relative_to(ROOT), asset.read_bytes())
    known = set(pages())
    files: set[Path] = set()
    for page in sorted(known):
        text = _with_links(page, (ROOT / page).read_text(encoding="utf-8"), known, files)
        _write(page, _linked_words(page, text).encode())
    for file in sorted(files):
        _write(_page_of(file), _source_page(file).encode())
    for name, page_of_api in API.items():
        _write(Path("reference/python", f"{name}.md"), _api_page(page_of_api).encode())
    _write(Path("reference/python/README.md"), _api_index().encode())


def _write(page: Path, content: bytes) -> None:
    path = PAGES / page
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _page_of(file: Path) -> Path:
    """Return the page that shows a file."""
    return Path("source") / file.with_name(f"{file.name}.md")


def _with_links(page: Path, text: str, known: set[Path], files: set[Path]) -> str:
    """Point links to folders at their README, and links to files at the page that shows them."""

    def replaced(match: re.Match[str]) -> str:
        target = match["target"]
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = (ROOT / page.parent / target).resolve()
        if not path.is_relative_to(ROOT) or not path.exists():
            return match[0]  # the build reports the broken link
        file = path.relative_to(ROOT)
        if file in known or file.match("docs/pictures/*"):
            return match[0]
        if path.is_dir():
            if file / "README.md" in known:
                return f"[{match['text']}]({target.rstrip('/')}/README.md)"
            return match["text"]
        files.add(file)
        up = "../" * len(page.parent.parts)
        return f"[{match['text']}]({up}{_page_of(file).as_posix()})"

    return "".join(
        part if fenced else LINK.sub(replaced, part) for part, fenced in _parts_of(text)
    )


def _parts_of(text: str) -> Iterator[tuple[str, bool]]:
    """Split a page into code blocks and the text between them."""
    for i, part in enumerate(re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)):
        yield part, i % 2 == 1


GLOSSARY = Path("docs/glossary.md")

LINKED_WORDS = (
    "candidate", "champion", "cell", "reward", "held-out cases", "posterior", "case effect",
    "promotion gate", "propensity", "e-value", "nats", "information gain", "journal", "ledger",
    "reservation", "lease", "persona", "arm", "off-policy", "exogenous", "interval",
    "working copy",
)  # fmt: skip
"""Terms with a project-specific meaning, as pages write them; each has a row in the glossary."""


def glossary_words() -> list[str]:
    """Return the glossary's words, in order."""
    rows = (ROOT / GLOSSARY).read_text(encoding="utf-8").splitlines()
    return [row.split("|")[1].strip() for row in rows if row.startswith("| ")][1:]


def anchor_of(word: str) -> str:
    """Return the anchor of a word's row in the glossary.

    Raises:
        KeyError: If the glossary has no row for it.
    """
    for row in glossary_words():
        if word == row or word.startswith(row) or row.startswith(word):
            return re.sub(r"[^a-z]+", "-", row.lower())
    raise KeyError(word)


def _linked_words(page: Path, text: str) -> str:
    """Link the first use of each of ``LINKED_WORDS``, and add anchors to the glossary's rows."""
    if page == GLOSSARY:
        return re.sub(
            r"^\| ([^|-][^|]*?) \|",
            lambda row: (
                f"| {row[1]} {{ #{re.sub(r'[^a-z]+', '-', row[1].lower())} }} |"
                if row[1] in glossary_words()
                else row[0]
            ),
            text,
            flags=re.MULTILINE,
        )
    if page.parts[0] != "docs" or "decisions" in page.parts:
        return text
    for word in LINKED_WORDS:
        text = _first_linked(text, word)
    return text


def _first_linked(text: str, word: str) -> str:
    """Link the first use of a word in running text."""
    # Skip code blocks, headings, table rows, HTML tags, links and inline code.
    left_alone = r"^```.*?^```$|^#.*?$|^\|.*?$|<[^>]+>|!?\[[^\]]*\]\([^)]*\)|`[^`]*`"
    pattern = re.compile(
        f"({left_alone})|(?<![\\w-])({re.escape(word)})(?![\\w-])", re.MULTILINE | re.DOTALL
    )
    for match in pattern.finditer(text):
        if match[2]:
            link = f"[{match[2]}](glossary.md#{anchor_of(word)})"
            return text[: match.start()] + link + text[match.end() :]
    return text


def _source_page(file: Path) -> str:
    text = (ROOT / file).read_text(encoding="utf-8")
    fence = "`" * 4
    return f"# {file.as_posix()}\n\n{fence}{LANGUAGES.get(file.suffix, '')}\n{text}{fence}\n"


def _api_page(page: ApiPage) -> str:
    options = "    options:\n      show_root_heading: true\n      show_root_toc_entry: true\n"
    blocks = [f"::: {name}\n{options}" for name in page.objects]
    blocks += [f"::: {name}\n" for name in page.modules]
    return f"# {page.title}\n\n{page.introduction}\n\n" + "\n".join(blocks)


def _api_index() -> str:
    rows = [f"| [{page.title}]({name}.md) | {page.introduction.split('. ')[0].rstrip('.')}. |"
            for name, page in API.items()]  # fmt: skip
    return (
        "# Python reference\n\nMade of the docstrings. To begin: "
        "[From Python](../../docs/python.md).\n\n| page | |\n|---|---|\n" + "\n".join(rows) + "\n"
    )


def build() -> None:
    """Assemble the pages and build the site. Warnings are errors.

    Raises:
        subprocess.CalledProcessError: If a link, an anchor or a docstring is broken.
    """
    assemble()
    shutil.rmtree(SITE, ignore_errors=True)
    try:
        subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
            cwd=ROOT,
            check=True,
            env={**os.environ, "NO_COLOR": "1"},
        )
    except subprocess.CalledProcessError:
        shutil.rmtree(SITE, ignore_errors=True)  # a partial site looks complete
        raise
    for path in SITE.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        shim = os.path.relpath(SITE / "docs/theme/iframe-worker.js", path.parent)
        path.write_text(text.replace(SHIM, shim), encoding="utf-8")


def main() -> None:
    """Build the site and, with ``--serve``, serve it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--serve", action="store_true", help="serve it at http://127.0.0.1:8000")
    serve = parser.parse_args().serve
    try:
        build()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    print(f"{SITE / 'index.html'}")
    if serve:
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(SITE))
        http.server.ThreadingHTTPServer(("127.0.0.1", 8000), handler).serve_forever()


if __name__ == "__main__":
    main()
