"""Bad configurations and files: exit code 2 and messages that name key and fix, never a traceback."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from convergence import run_optimization_sync
from convergence_core.errors import ConfigurationError
from tasks.functions.user_functions import arguments_of, describe, is_async
from tests.support.commands import Done, Runner

CONFIG = """\
api: {name: bot, function: "bot.py:answer", request: {timeout_seconds: 5}}
search_space:
  parameters:
    t: {type: float, min: 0, max: 1}
    n: {type: int, min: 1, max: 9}
    m: {type: categorical, choices: [a, b]}
    p: {type: text, variants: [Be brief., Be kind.]}
evaluation:
  test_cases: {path: cases.json, holdout: 0.5}
  repeats: 1
  metrics: {q: {type: exact_match, weight: 1}}
optimization:
  algorithm: mab_evolution
  seed: 1
  evolution: {population_size: 4, generations: 2}
  execution: {parallel_workers: 2, early_stopping: {patience: 2, min_improvement: 0.1}}
budget: {max_calls: 100, max_usd: 1.0, allow_unknown_prices: true}
storage: {path: ./store, keep_text: true}
output: {save_path: ./results, formats: [json]}
"""
BOT = "def answer(t=0, **others):\n    return 'x'\n"
CASES = json.dumps([{"id": str(n), "input": f"q{n}", "expected": "x"} for n in range(4)])
MARKS = ("Traceback", "Unexpected error")


@pytest.fixture
def project(here: Path) -> Path:
    (here / "optimization.yaml").write_text(CONFIG)
    (here / "bot.py").write_text(BOT)
    (here / "cases.json").write_text(CASES)
    return here


def refused(done: Done, key: str) -> None:
    """Check that a command refused its input and said where and what to do."""
    assert done.code == 2, (done.code, done.out, done.err)
    assert not [mark for mark in MARKS if mark in done.out + done.err]
    problems = done.json["problems"]
    assert problems
    assert all(row["rule"] and row["fix"] for row in problems)
    keys = [row["key"] for row in problems]
    assert any(found.startswith(key) or key.startswith(f"{found}.") for found in keys), keys


def with_config(old: str, new: str) -> Callable[[Path], None]:
    def bend(folder: Path) -> None:
        assert old in CONFIG
        (folder / "optimization.yaml").write_text(CONFIG.replace(old, new))

    return bend


def with_file(name: str, content: str | bytes, *, config: tuple[str, str] | None = None) -> Any:
    def bend(folder: Path) -> None:
        if config is not None:
            with_config(*config)(folder)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return bend


def with_cases(name: str, content: str | bytes) -> Any:
    return with_file(name, content, config=("cases.json", name))


def in_place_of(name: str, make: Callable[[Path], None]) -> Callable[[Path], None]:
    def bend(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return bend


def config_of(content: str | bytes) -> Any:
    return with_file("optimization.yaml", content)


def occupied(name: str, content: str = "mine") -> Callable[[Path], None]:
    def bend(folder: Path) -> None:
        (folder / name).mkdir()
        (folder / name / "thesis.txt").write_text(content)

    return bend


STORE, SAVE = "storage: {path: ./store, keep_text: true}", "save_path: ./results"
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
HAND_WRITTEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "a BaseException at import": (
        with_file("bot.py", "class Stop(BaseException): pass\nraise Stop('x')"), "api.function"),
    "SystemExit at import": (with_file("bot.py", "import sys; sys.exit(0)"), "api.function"),
    "an error that cannot say what it is": (
        with_file("bot.py", "class E(Exception):\n  def __str__(self): raise E\nraise E"), "api.function"),
    "a module that answers no name": (
        with_file("bot.py", "def __getattr__(name): raise RuntimeError(name)"), "api.function"),
    "a syntax error": (with_file("bot.py", "def answer(:"), "api.function"),
    "recursion at import": (with_file("bot.py", "def f(): f()\nf()"), "api.function"),
    "a function that is a number": (with_file("bot.py", "answer = 3"), "api.function"),
    "a folder as the function's file": (in_place_of("bot.py", Path.mkdir), "api.function"),
    "a pipe as the function's file": (in_place_of("bot.py", os.mkfifo), "api.function"),
    "links in a circle as the function's file": (
        in_place_of("bot.py", lambda path: path.symlink_to(path)), "api.function"),
    "NUL in the function": (with_config("bot.py:answer", "bot\\0.py:answer"), "api.function"),
    "NUL in the cases' path": (with_config("cases.json", '"cases\\0.json"'), "evaluation.test_cases"),
    "NUL in the store's path": (with_config("./store", '"a\\0b"'), "storage.path"),
    "NUL in the results' path": (with_config("./results", '"a\\0b"'), "output.save_path"),
    "NUL in a prompt": (with_config("Be brief.", '"Be\\0"'), "search_space.parameters.p.variants"),
    "a pipe as cases": (in_place_of("cases.json", os.mkfifo), "evaluation.test_cases"),
    "a folder as cases": (in_place_of("cases.json", Path.mkdir), "evaluation.test_cases"),
    "links in a circle as cases": (
        in_place_of("cases.json", lambda path: path.symlink_to(path)), "evaluation.test_cases"),
    "a name that is too long": (with_config("cases.json", "c" * 5000 + ".json"), "evaluation.test_cases"),
    "a lone surrogate in a name": (with_config("cases.json", '"\\ud800.json"'), ""),
    "a key twice in a JSON case": (
        with_cases("c.json", '[{"input": "a", "input": "b", "expected": "x"}]'), "evaluation.test_cases"),
    "NaN in cases": (with_cases("c.json", '[{"input": NaN}]'), "evaluation.test_cases"),
    "brackets without end in cases": (with_cases("c.json", "[" * 100_000), "evaluation.test_cases"),
    "UTF-16 cases": (with_cases("c.json", CASES.encode("utf-16")), "evaluation.test_cases"),
    "a store path that is a file": (with_config("./store", "bot.py"), "storage.path"),
    "a store path that is another folder": (
        occupied("store"), "storage.path"),
    "a store path that is a link to nowhere": (
        lambda folder: (folder / "store").symlink_to("gone/there"), "storage.path"),
    "a store path that is a pipe": (lambda folder: os.mkfifo(folder / "store"), "storage.path"),
    "a store whose marker is none": (
        lambda folder: (occupied("store")(folder), (folder / "store/store.json").write_text("{"))[0],
        "storage.path"),
    "results in a file": (with_config("./results", "cases.json"), "output.save_path"),
    "a host that no name can be": (
        with_config('function: "bot.py:answer"', "endpoint: 'https://\u2603..example/'"),
        "api.endpoint"),
    "a judge's host that no name can be": (
        with_config("{q: {type: exact_match, weight: 1}}",
                    "{q: {type: llm_judge, rubric: r, weight: 1, "
                    "llm: {model: m, endpoint: 'https://\u2603.example/v1'}}}"),
        "evaluation.metrics.q.llm.endpoint"),
    "a journal whose variable is not set": (
        with_config(STORE, 'storage: {journal: "${CONVERGENCE_TEST_UNSET}"}'), "storage.journal"),
    "a journal whose variable holds something else": (
        with_config(STORE, 'storage: {journal: "${HOME}"}'), "storage.journal"),
    "an address without a bucket": (with_config("./store", "s3://"), "storage.path"),
    "an address with a blank": (with_config("./store", "'gs:// b'"), "storage.path"),
    "dollars that nobody can count": (
        with_config(", allow_unknown_prices: true", ""), "budget.max_usd"),
    "a bomb of aliases": (config_of(BOMB), ""),
    "an alias to itself": (config_of("api: &a {name: bot, function: *a}\n"), ""),
    "a cycle of mappings": (config_of("a: &a\n  b: *a\n"), ""),
    "a tag that makes objects": (
        config_of("api: !!python/object/apply:os.system ['true']\n"), ""),
    "nothing": (config_of(""), ""),
    "bytes that are no text": (config_of(bytes(range(256))), ""),
    "a key twice": (config_of(CONFIG + "storage: {path: ./other}\n"), "storage"),
    "keys that look alike": (config_of(CONFIG.replace("budget:", "bud\u200bget:")), "bud"),
    "a huge whole number": (with_config("seed: 1", "seed: " + "9" * 4_400), "optimization.seed"),
    "a folder as the configuration": (in_place_of("optimization.yaml", Path.mkdir), ""),
    "a pipe as the configuration": (in_place_of("optimization.yaml", os.mkfifo), ""),
    "no configuration": (lambda folder: (folder / "optimization.yaml").unlink(), ""),
    "links in a circle as the configuration": (
        in_place_of("optimization.yaml", lambda path: path.symlink_to(path)), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_what_nobody_would_write_is_refused_with_key_and_fix(
    project: Path, cli: Runner, name: str
):
    bend, key = HAND_WRITTEN[name]
    bend(project)
    refused(cli("validate", "--json"), key)


MISSING_PARTS = {
    "api.function": "bot.py:missing",
    "evaluation.metrics.q": {"type": "function", "function": "bot.py:missing"},
    "feedback.training.rater": "raters.py:rate",
    "feedback.training.base_model_path": "models/missing.gguf",
    "society": {"games": {"games": {"a": {"file": "a.py:A"}, "b": {"file": "b.py:B"}}}},
}


def test_all_functions_files_and_models_that_cannot_be_resolved_are_named_at_once(
    project: Path, cli: Runner
):
    sets = [f"--set={key}={json.dumps(value)}" for key, value in MISSING_PARTS.items()]
    done = cli("validate", *sets, "--json")
    assert done.code == 2
    assert {problem["key"] for problem in done.json["problems"]} == {
        "api.function",
        "evaluation.metrics.q.function",
        "feedback.training.rater",
        "feedback.training.base_model_path",
        "society.games.games.a.file",
        "society.games.games.b.file",
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everywhere")
@pytest.mark.parametrize(
    ("name", "key"), [("cases.json", "evaluation.test_cases"), ("bot.py", "api.function")]
)
def test_files_that_may_not_be_read_are_refused(project: Path, cli: Runner, name: str, key: str):
    (project / name).chmod(0)
    refused(cli("validate", "--json"), key)


"""What is no value of any key below."""


@pytest.mark.parametrize(
    "name",
    ["a store path that is a file", "a journal whose variable is not set",
     "an address without a bucket", "results in a file", "a BaseException at import"],
)  # fmt: skip
def test_a_run_is_refused_before_anything_is_made(project: Path, cli: Runner, name: str):
    HAND_WRITTEN[name][0](project)
    before = {path.name for path in project.iterdir()}
    done = cli("optimize", "--quiet")
    assert done.code == 2, (done.out, done.err)
    assert not [mark for mark in MARKS if mark in done.err]
    assert {path.name for path in project.iterdir()} - {"__pycache__"} == before


class Hostile:
    """Raises whatever it is asked, as a mock that somebody made might."""

    def __getattr__(self, name: str) -> Any:
        raise OSError(name)

    def __call__(self, **_: Any) -> str:
        return "x"


def made_of(**given: Any) -> Callable[[], object]:
    return lambda: run_optimization_sync("optimization.yaml", **given)


GIVEN: dict[str, tuple[Callable[[], object], str]] = {
    "a pipe": (lambda: run_optimization_sync("pipe.yaml", local_function=Hostile()), ""),
    "a number as cases": (made_of(test_cases=3), "test_cases"),
    "a pipe as cases": (made_of(test_cases="pipe.yaml"), "evaluation.test_cases"),
    "links in a circle": (made_of(test_cases="loop/cases.json"), "evaluation.test_cases"),
    "an object in a case": (
        made_of(test_cases=[{"input": object()}]), "evaluation.test_cases.inline[0].input"),
    "a number as evaluator": (made_of(evaluator=3), "evaluator"),
    "unknown arguments": (made_of(local_function=lambda a, b, c, d: 1), "api.function"),
    "a negative seed": (made_of(seed=-1), "optimization.seed"),
}  # fmt: skip


@pytest.mark.parametrize("name", GIVEN)
def test_what_python_is_given_is_refused_with_its_name(project: Path, name: str):
    call, key = GIVEN[name]
    os.mkfifo(project / "pipe.yaml")
    (project / "loop").symlink_to("loop")
    with pytest.raises(ConfigurationError) as caught:
        call()
    assert caught.value.problems[0].key == key


def test_objects_that_raise_when_they_are_asked_are_functions_still():
    assert (is_async(Hostile()), arguments_of(Hostile())) == (False, None)
    assert describe(Hostile()).endswith(":Hostile")
    assert is_async(Mock()) is False


@pytest.mark.parametrize("command", [("runs",), ("estimate",), ("init", "bot.py")])
def test_no_command_waits_for_a_pipe_or_stumbles_over_a_file(
    project: Path, cli: Runner, command: tuple[str, ...]
):
    in_place_of("optimization.yaml", os.mkfifo)(project)
    done = cli(*command)
    assert done.code == 2, (done.out, done.err)
    assert not [mark for mark in MARKS if mark in done.err]


SCRIPT = """
from convergence import run_optimization_sync

def answer(t=0, **others):
    return "x"

def own(case, reply):
    return 1.0

{guard}run_optimization_sync("optimization.yaml", logging_mode="silent")
"""


@pytest.mark.slow
def test_a_script_without_a_main_guard_is_refused_and_does_not_hang(
    project: Path, cli: Runner, python: Runner
):
    with_config("q: {type: exact_match", 'q: {type: function, function: "bot.py:own"')(project)
    (project / "bot.py").write_text(SCRIPT.format(guard=""))
    done = cli("validate", "--json")
    refused(done, "evaluation.metrics.q.function")
    assert {row["line"] for row in done.json["problems"]} == {10}
    assert "__main__" in done.json["problems"][0]["fix"]
    ended = python("import runpy; runpy.run_path('bot.py', run_name='__main__')", cwd=project)
    assert ended.code == 1
    assert "without starting an optimization" in ended.err
    assert not (project / "store").exists()
    assert "bot" not in sys.modules
