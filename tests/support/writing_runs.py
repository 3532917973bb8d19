"""Runs that write prompts, without Prefect: a function target that reads its prompt, and a writer.

As a program, it finishes a folder's run in a child process and dies by SIGKILL at a counted write
step. Arguments: folder, step (0 means none).
"""

import hashlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tasks.store.tables.parquet_store import ParquetStore
from tests.support.configuration_files import write_configuration
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer
from tests.support.stepped_runs import STORE, begin, go_on, play

PARENT = "Classify the text in {place} words."
FUNCTION = """
import hashlib

WORDS = {"good": "positive", "great": "positive", "bad": "negative", "awful": "negative"}


def ask(system, text, **others):
    body = system.split("<shots>")[0]
    label = next(label for word, label in WORDS.items() if word in text)
    share = 0.25 + 0.4 * ("one of" in body) + 0.2 * ("<shots>" in system)
    number = int(hashlib.sha256((body + text).encode()).hexdigest(), 16) % 1000 / 1000
    return label if number < share else f"I think it is {label}, all in all."
"""
WORDS = {"good": "positive", "great": "positive", "bad": "negative", "awful": "negative"}


def write_project(folder: Path, url: str | None, **overrides: Any) -> Path:
    """Write a project whose writer is at a URL; ``None``: rules write. Keys by path, ``__`` for dots."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "target.py").write_text(FUNCTION, encoding="utf-8")
    cases = [
        {
            "id": f"c{n:02d}",
            "input": {
                "text": f"Visitor number {n} of the old museum found it {word} on day {n * 7}"
            },
            "expected": WORDS[word],
        }
        for n in range(24)
        for word in [[*WORDS][n % 4]]
    ]
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    tree: dict[str, Any] = {
        "api": {"name": "visitors", "kind": "function", "function": "target.py:ask",
                "description": "Says what visitors thought."},
        "search_space": {"parameters": {"system": {
            "type": "text", "variants": [PARENT], "default": PARENT, "mutate": True}}},
        "evaluation": {
            "test_cases": {"path": "cases.json", "holdout": 0.33},
            "metrics": {"exact": {"type": "exact_match"}},
        },
        "optimization": {
            "seed": 3,
            "evolution": {"population_size": 3, "generations": 4},
            "execution": {"max_retries": 0, "early_stopping": {"enabled": False}},
        },
        "output": {"formats": ["json"]},
    }  # fmt: skip
    if url is None:
        tree["prompts"] = {"writer": "rules"}
    else:
        tree["llm"] = {"model": "scribe", "endpoint": f"{url}/v1", "timeout_seconds": 5}
        tree["prices"] = {"scribe": {"input": 1.0, "output": 2.0}}
    return write_configuration(folder, tree, overrides)


class Scribe:
    """A writer's double: each prompt is a function of the request, its place in it, and its number."""

    def __init__(self, answer: Callable[[str, int], str] | None = None) -> None:
        self.asked: list[str] = []
        self.n_written = 0
        self._answer = answer or obliging

    def respond(self, request: Request) -> Answer:
        """Answer one request."""
        text = str(request.body["messages"][-1]["content"])
        self.asked.append(text)
        wanted = re.search(r"^Write (\d+) prompts ", text, re.MULTILINE)
        answers = []
        for place in range(int(wanted[1]) if wanted else 1):
            self.n_written += 1
            answers.append(self._answer(f"{text}{place}", self.n_written))
        return chat_answer("".join(answers))

    def server(self) -> LoopbackServer:
        """Return its server; a context manager."""
        return LoopbackServer(self.respond)


def obliging(request: str, number: int) -> str:
    """Write the parent and a sentence that depends on the request alone; to a third of them, the parent."""
    mark = hashlib.sha256(request.encode()).hexdigest()[:8]
    if int(mark, 16) % 3 == 0:
        return f"<prompt>{PARENT}</prompt>"
    rule = "Answer with one of: positive, negative." if int(mark, 16) % 2 else "Weigh all words."
    return f"<diagnosis>too long</diagnosis><prompt>{PARENT} {rule} Rule {mark}.</prompt>"


def rows(folder: Path, sql: str) -> Sequence[Any]:
    """Return rows of a store."""
    return [*ParquetStore(folder / STORE).rows(sql, {})]


def mutations(folder: Path) -> list[dict[str, Any]]:
    """Return all rows of ``mutations`` but for what differs from run to run."""
    found = rows(folder, "SELECT * FROM mutations ORDER BY generation, position")
    own = {"run_id", "mutation_id"}
    return [{k: v for k, v in dict(row).items() if k not in own} for row in found]


if __name__ == "__main__":
    from tests.support.killed_command import count_steps

    place = Path(sys.argv[1])
    is_begun = bool(ParquetStore(place / STORE).runs()) if (place / STORE).exists() else False
    count_steps(sys.argv[1], int(sys.argv[2]))
    play(go_on(place) if is_begun else begin(place))
