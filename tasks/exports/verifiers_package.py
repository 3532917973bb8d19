"""Plays of verifiable tasks as an environment of the package ``verifiers``.

A folder that pip installs: ``load_environment`` makes a single-turn environment of the rows beside it. Its reward
is the library's verdict, asked in the limited process of ``tasks.games.reasoning_tasks``: many verifiers evaluate
answers as Python, and a model's answers are nobody's to run.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from convergence_core.errors import ConfigurationError
from convergence_core.games.round_records import PlayRecord
from convergence_core.records import canonical_json
from tasks.games.game_data import GameForm, game_rows
from tasks.store.layout import make_folder, write_file

MODULE: Final = '''"""Environment of verifiable tasks, as the package verifiers loads it."""

import asyncio
import json
from pathlib import Path

import verifiers as vf
from datasets import Dataset
from tasks.games.reasoning_tasks import ReasoningLibrary, answer_of

ROWS = Path(__file__).with_name("tasks.jsonl")
LIBRARY = "{library}"


def load_environment(limit_s: float = 20.0, **options):
    """Return the tasks as a single-turn environment.

    Args:
        limit_s: seconds that one verdict may take.
        options: of `verifiers.SingleTurnEnv`.
    """
    library = ReasoningLibrary(limit_s)
    if f"reasoning-gym {{library.version}}" != LIBRARY:
        raise RuntimeError(f"These tasks are of {{LIBRARY}}; version {{library.version}} is installed.")

    async def verdict(completion, info, **_) -> float:
        """Verdict of the library, in [0, 1]."""
        asked = json.loads(info) if isinstance(info, str) else info
        last = completion[-1] if completion else {{}}
        said = last.get("content") if isinstance(last, dict) else getattr(last, "content", "")
        answer = answer_of(said if isinstance(said, str) else "")
        found = await asyncio.to_thread(library.verdict, asked["generator"], asked["seed"], answer)
        return found.score

    rows = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
    return vf.SingleTurnEnv(
        dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[verdict]), **options
    )
'''
PROJECT: Final = """[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
description = "Verifiable tasks that were played as language games"
requires-python = ">=3.11"
dependencies = ["convergence-optimizer[games]", "{requirement}", "verifiers>=0.1.8,<0.4"]

[tool.hatch.build.targets.wheel]
packages = ["{module}"]
"""
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")


def verifiers_rows(plays: Sequence[PlayRecord]) -> list[dict[str, Any]]:
    """Return the rows of an environment: ``prompt``, ``answer``, ``info`` as JSON; each task once.

    The game is named in ``info``, for a column ``task`` is read as JSON by some versions.
    """
    return [
        {
            "prompt": row["prompt"],
            "answer": "",
            "info": canonical_json({**row["info"], "game": row["task"]}),
        }
        for row in game_rows(plays, GameForm.GRPO)
    ]


def write_verifiers(rows: Sequence[dict[str, Any]], folder: Path) -> str:
    """Write an environment into a folder, over one that is there; return its name for ``load_environment``.

    Args:
        rows: at least one.
        folder: its name is the environment's.

    Raises:
        ConfigurationError: the folder's name is no package's, or rows are of several versions of the library.
        StoreWriteError: the folder cannot be written.
    """
    name = folder.absolute().name
    if not _NAME.fullmatch(name):
        rule = "must be a folder named like a package: lower-case letters, digits and `-`"
        fix = "Write e.g. `--output convergence-games`."
        raise ConfigurationError.of("--output", rule, fix, value=str(folder))
    libraries = sorted({str(json.loads(row["info"])["library"]) for row in rows})
    if len(libraries) > 1:
        rule = "must hold tasks of one version of the library"
        fix = "Choose a game that was played with one, by --game."
        raise ConfigurationError.of("--format", rule, fix, value=", ".join(libraries))
    (library,), module = libraries, name.replace("-", "_")
    package, _, version = library.partition(" ")
    project = PROJECT.format(
        name=name.replace("_", "-"), module=module, requirement=f"{package}=={version}"
    )
    make_folder(folder / module)
    write_file(folder / "pyproject.toml", project)
    write_file(folder / module / "__init__.py", MODULE.format(library=library))
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_file(folder / module / "tasks.jsonl", "".join(lines))
    return name.replace("_", "-")
