"""Words that people read: how many, how hard, and which of them are ours."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from convergence.cli.app import app
from tasks.report.markdown import report_markdown
from tests.docs.test_documents import README, ROOT
from tests.report.test_wording import GATE
from tests.support.results import made_up_result

TUTORIALS = ("first-steps", "prompts", "nightly", "runtime", "targets")
PACKAGES = ("convergence", "convergence_core", "tasks", "flows", "deployments")
PROMPTS = (
    "operators",
    "twins",
    "strategies",
    "templates",
    "prompts",
    "roles",
    "players",
)
"""Modules whose texts a model reads."""
MOST_WORDS_OF_A_SENTENCE = 35
REPORT = report_markdown(replace(made_up_result(), gate=GATE)).partition("## Details")[0]


def prose(page: str) -> str:
    """Return a page without code, tables, headings and addresses; list items end as sentences do."""
    page = re.sub(r"^```.*?^```|^\|.*?$|^#.*?$|^!\[.*?$", "", page, flags=re.M | re.S)
    page = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "key", page))
    return re.sub(r"\n\s*\n|:\n|^\s*[*-] ", ". ", page, flags=re.M)


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z][A-Za-z'-]*", text)


def sentences(text: str) -> list[str]:
    parts = re.split(r"(?<=[.!?;:])\s+", " ".join(text.split()))
    return [part for part in parts if words(part)]


def n_syllables(word: str) -> int:
    """Count groups of vowels, without a silent e at the end."""
    return max(1, len(re.findall(r"[aeiouy]+", re.sub(r"(?<=[^aeiouyl])e$", "", word.lower()))))


def grade(page: str) -> float:
    """Return the Flesch-Kincaid grade level (Kincaid et al. 1975)."""
    text = prose(page)
    n_sentences = sum(bool(words(part)) for part in re.split(r"[.!?]\s", text))
    n_words, syllables = len(words(text)), sum(map(n_syllables, words(text)))
    return 0.39 * n_words / n_sentences + 11.8 * syllables / n_words - 15.59


def private_words(page: str) -> set[str]:
    """Return the glossary's terms that a page uses and links nowhere."""
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    terms = set(re.findall(r"^\| ([\w -]+?) \|", glossary, re.MULTILINE)) - {"word"}
    linked = " ".join(re.findall(r"\[([^\]]*)\]\(", page)).lower()
    text = prose(re.sub(r"\[[^\]]*\]\([^)]*\)", "", page)) + " ".join(
        re.findall(r"^\|.*$", page, re.M)
    )
    return {
        term
        for term in terms
        if re.search(rf"\b{term}(s|es)?\b", text, re.IGNORECASE)
        and not re.search(rf"\b{term}(s|es)?\b", linked)
    }


def test_the_grade_is_the_published_one_of_a_known_text():
    assert grade("The cat sat on the mat.") == pytest.approx(-1.45, abs=0.01)


def test_pages_keep_to_their_lengths():
    assert len(README.split()) <= 700
    assert len(REPORT.split()) <= 600
    pages = [*(ROOT / "docs").rglob("*.md")]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 45_000


@pytest.mark.parametrize("name", ["README.md", *(f"docs/{name}.md" for name in TUTORIALS)])
def test_a_tutorial_reads_at_grade_ten_at_most(name: str):
    assert grade((ROOT / name).read_text(encoding="utf-8")) <= 10


def test_private_words_are_linked_or_few():
    assert private_words(README) == set()
    assert len(private_words(REPORT)) <= 5, private_words(REPORT)


def messages(path: Path) -> Iterator[str]:
    """Yield the texts of a module that are no documentation, SQL, pattern or template."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    parts |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in parts:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(v.value if isinstance(v, ast.Constant) else "…" for v in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def messages_of_packages() -> Iterator[str]:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if "templates" not in path.parts and path.stem not in PROMPTS:
                yield from messages(path)


def helps(command: Any) -> Iterator[str]:
    yield command.help or ""
    yield from (getattr(option, "help", None) or "" for option in command.params)
    for child in getattr(command, "commands", {}).values():
        yield from helps(child)


def is_sentence(text: str) -> bool:
    """Whether a text is for people: neither a list of names nor SQL nor a pattern."""
    return text.endswith((".", "?", "!")) and not re.search(
        r"^SELECT |\\[sbw]|<\w+>|_us\b|: str", text
    )


def test_no_sentence_of_readme_help_or_messages_is_longer_than_thirty_five_words():
    texts = [prose(README), *helps(get_command(app))]
    texts += filter(is_sentence, messages_of_packages())
    long = [
        sentence
        for text in texts
        for paragraph in text.split("\n\n")
        for sentence in sentences(paragraph)
        if len(words(sentence)) > MOST_WORDS_OF_A_SENTENCE
    ]
    assert len(texts) > 1_000
    assert long == []


def test_messages_and_pages_use_no_phrase_of_the_list():
    """`make check` reads the documents and the commands; these are the rest that people read."""
    lines = (ROOT / "docs/phrases.txt").read_text(encoding="utf-8").splitlines()
    listed = re.compile("|".join(lines), re.IGNORECASE)
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "ui/src").rglob("*.ts*")]
    pages = [re.sub(r"/\*.*?\*/|(?<!:)//.*?$", "", text, flags=re.M | re.S) for text in sources]
    texts = [text for text in messages_of_packages() if text.count(" ") > 1]
    rejected = [
        line for text in (*texts, *pages) for line in text.splitlines() if listed.search(line)
    ]
    assert len(pages) > 10
    assert [line for line in rejected if "SELECT" not in line] == []
