"""Every template and example, mutated: exit code 0 or 2, no traceback, nothing called or left."""

import copy
import json
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import typer
import yaml

from convergence import console
from convergence.cli import begin
from convergence.templates import plan_files
from tests.support.commands import Runner
from tests.support.config_examples import EXAMPLES

N_MUTATED = 120
NAME = "optimization.yaml"
TEMPLATES = ("function", "http", "openai", "quickstart", "recorded-exam")
CASES = [
    {"input": {"question": "a"}, "expected": "x"},
    {"input": {"question": "b"}, "expected": "y"},
]
FILES = {
    "bot.py": "def answer(**arguments):\n    return 'x'\n",
    "metrics.py": "def own(**arguments):\n    return 1.0\n",
    "test_cases.json": json.dumps(CASES),
    "cases.jsonl": "\n".join(json.dumps(case) for case in CASES),
    "prompts/a.md": "Be kind.",
    "rubric.md": "Is it right?",
    "safe.md": "Is it safe?",
}
LONG = "x" * 20_000
Path_: TypeAlias = tuple[Any, ...]


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 10**30, 10**400, 1e300, -1e300, 1e-320, 0.5, float("nan"), float("inf"),
    "", " ", "\0", "\ud800", "\u202e\u200b", "\U0001f600" * 50, LONG, "..", "/", "/dev/null", "/dev/full",
    "/proc/1/root", "bot.py", "prompts", "missing.json", "missing.py:f", "os:system", "os.path:join",
    "json:dumps", "sys:exit", "bot:", "bot.py:", ":f", "bot.py:a.b", "..x:f", "bot..x:f", "a b:c", "__main__:x",
    "bot.py:__doc__", "${NOT_SET_ANYWHERE}", "${", "${}", "${HOME}", "{", "{x}", "{input.a.b[0]", "{input[9999999999]}",
    "{templates.x}", "%s", "s3://", "s3:///", "gs://a b", "az://?", "file:///x", "postgresql://", "http://",
    "http://[::1", "http://h:99999", "https://u:p@h", "http://\u2603.example", "gemini/", "/x", "(", "(a+)+$", "\\",
    "2026-01-01", "0x10", "1e5", "on", [], [[]], [None], ["a", "a"], [{}], list(range(500)), {}, {"": 1},
    {"a": {"b": {"c": {}}}}, {"type": "float"}, {"enabled": True}, {"path": "x"}, {"\ud800": 1}, {"\0": 1},
    {LONG: 1}, nested(50), nested(100), {"min": 1, "max": 0},
)  # fmt: skip
NAMES = ("x", "", "\ud800", "\0", "a.b", "1", "null", "<<", "[x]", "\u200b", LONG)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """Return name → folder and text of each configuration that is mutated."""
    found = {}
    folders = {f"template {name}": plan_files(name, {}) for name in TEMPLATES}
    folders |= {f"example {name}": {**FILES, NAME: text} for name, text in EXAMPLES.items()}
    for name, files in folders.items():
        folder = tmp_path_factory.mktemp("base")
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        found[name] = folder, files[NAME]
    return found


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what the examples need, and let nobody connect to anything."""

    def refuse(_self: socket.socket, address: object) -> None:
        raise AssertionError(f"connects to {address!r}")

    monkeypatch.setenv("JOURNAL_URL", "postgresql://127.0.0.1:1/journal")
    monkeypatch.setattr(socket.socket, "connect", refuse)


def places_of(data: Any, above: Path_ = ()) -> list[Path_]:
    found = [above] if above else []
    items: Any = ()
    if isinstance(data, dict):
        items = data.items()
    elif isinstance(data, list):
        items = enumerate(data)
    for key, value in items:
        found += places_of(value, (*above, key))
    return found


def at(data: Any, path: Path_) -> Any:
    for key in path:
        data = data[key]
    return data


def mutated(text: str, rng: random.Random) -> bytes:
    """Return a configuration with one to three values, keys or places replaced."""
    data = yaml.safe_load(text)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = places_of(data)
        if not places:
            break
        *above, key = rng.choice(places)
        holder = at(data, tuple(above))
        kind = rng.randrange(7)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[rng.choice([f"{key}s", f"{key}"[:-1], f"{key}".upper(), *NAMES])] = holder.pop(
                key
            )
        elif kind == 2:
            holder[key] = copy.deepcopy(at(data, rng.choice(places)))
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    written = json.dumps(data) if rng.random() < 0.5 else yaml.safe_dump(data, width=10**6)
    return rng.choice(ENCODINGS)(written, rng)


def doubled(text: str, rng: random.Random) -> bytes:
    lines = text.splitlines(keepends=True)
    lines.insert(rng.randrange(len(lines)), rng.choice(lines))
    return "".join(lines).encode()


ENCODINGS: tuple[Callable[[str, random.Random], bytes], ...] = (
    *[lambda text, _: text.encode()] * 8,
    lambda text, _: b"\xef\xbb\xbf" + text.encode(),
    lambda text, _: text.replace("\n", "\r\n").encode(),
    lambda text, _: text.encode("utf-16"),
    lambda text, rng: text.encode()[: rng.randrange(len(text))],
    doubled,
)


def verdict_on(folder: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> str:
    """Validate a configuration as the command does; whatever it should not do fails."""
    (folder / NAME).write_bytes(content)
    before = {path.name for path in folder.iterdir()}
    code = 0
    console.settings.json = True
    try:
        begin.validate(Path(NAME))
    except typer.Exit as end:
        code = end.exit_code
    finally:
        console.settings.json = False
    left = {path.name for path in folder.iterdir()} - before - {"__pycache__"}
    assert not left, f"left {left}"
    told = json.loads(capsys.readouterr().out)
    assert code == (0 if told["ok"] else 2)
    if told["ok"]:
        return "valid"
    assert told["problems"]
    for row in told["problems"]:
        assert row["rule"].strip(), row
        assert row["fix"].strip(), row
        assert "\n" not in row["rule"], row
        assert row["key"] or row["file"] or NAME in json.dumps(row), row
    return "refused"


def test_what_is_mutated_below_is_valid(bases, monkeypatch, capsys):
    for name, (folder, text) in bases.items():
        monkeypatch.chdir(folder)
        assert verdict_on(folder, text.encode(), capsys) == "valid", name


def test_mutated_configurations_are_valid_or_refused_in_words(bases, monkeypatch, capsys):
    rng = random.Random("bad configurations")
    verdicts = []
    for i in range(N_MUTATED):
        name = rng.choice(sorted(bases))
        folder, text = bases[name]
        monkeypatch.chdir(folder)
        content = mutated(text, rng)
        try:
            verdicts.append(verdict_on(folder, content, capsys))
        except Exception as error:
            raise AssertionError(f"{i}, {name}: {content[:3000]!r}") from error
    assert verdicts.count("refused") > N_MUTATED * 0.8, "mutations hardly break anything"
    assert "valid" in verdicts


def test_mutated_configurations_end_the_command_with_their_code(bases, python: Runner):
    rng = random.Random("in a process")
    folder, text = bases["template function"]
    content = mutated(text, rng)
    while b"\\ud800" not in content:  # which is no character, so no text of a console either
        content = mutated(text, rng)
    (folder / NAME).write_bytes(content)
    done = python("from convergence.__main__ import main; main()", "validate", cwd=folder)
    assert done.code == 2, done
    assert "Traceback" not in done.err
    assert "found" in done.err.splitlines()[-1]
